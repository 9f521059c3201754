package ratelimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func Example() {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "hello", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"/greet.v1.Greeter/Hello"}},
	)
	hello := func(_ context.Context, name *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(wrapperspb.String("hello, " + name.Msg.GetValue())), nil
	}
	// With generated code: greetconnect.NewGreeterHandler(greeter, connect.WithInterceptors(limit))
	mux := http.NewServeMux()
	mux.Handle("/greet.v1.Greeter/Hello", connect.NewUnaryHandler("/greet.v1.Greeter/Hello", hello, connect.WithInterceptors(limit)))
	server := httptest.NewServer(mux)
	defer server.Close()

	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](server.Client(), server.URL+"/greet.v1.Greeter/Hello")
	for range 3 {
		response, err := client.CallUnary(context.Background(), connect.NewRequest(wrapperspb.String("gopher")))
		if err != nil {
			fmt.Println(connect.CodeOf(err))
			continue
		}
		fmt.Println(response.Msg.GetValue(), "remaining", response.Header().Get("RateLimit-Remaining"))
	}
	// Output:
	// hello, gopher remaining 1
	// hello, gopher remaining 0
	// resource_exhausted
}

// The handler of a stream charges each message that it receives.
func ExampleFromContext() {
	_ = func(ctx context.Context, stream *connect.ClientStream[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		for stream.Receive() {
			if err := ratelimit.FromContext(ctx).Spend(ctx, 1, "messages"); err != nil {
				slog.WarnContext(ctx, "message not charged", "error", err) // names the store: not for the client
			}
		}
		return connect.NewResponse(new(emptypb.Empty)), stream.Err()
	}
}
