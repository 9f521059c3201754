// Connect limits a Connect server to 2 calls a second for each address, after a burst
// of 3. Its clients, one for each protocol, make 4 calls each and wait as long as the
// server says.
//
//	go run ./examples/connect
//
// The service has a message of Protobuf's own, so no code is generated.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var protocols http.Protocols // gRPC needs HTTP/2
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Handler: newHandler(gcra.NewMemory()), Protocols: &protocols, ReadHeaderTimeout: 5 * time.Second}
	defer server.Close()
	go server.Serve(listener)
	return call(out, "http://"+listener.Addr().String())
}

const procedure = "/greet.v1.Greeter/Hello"

func newHandler(store gcra.Store) http.Handler {
	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(2).WithBurst(3)}, // behind a proxy: keyfunc.TrustedProxies
		ratelimit.Policy{Name: "greetings", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100), Routes: []string{"/greet.v1.Greeter/*"}},
	)
	hello := func(_ context.Context, name *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(wrapperspb.String("hello, " + name.Msg.GetValue())), nil
	}
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, hello, connect.WithInterceptors(limit))) // authentication goes before limit
	return mux
}

func call(out io.Writer, url string) error {
	var http2 http.Protocols
	http2.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &http2}
	defer transport.CloseIdleConnections()

	for _, protocol := range []struct {
		name   string
		option connect.ClientOption
	}{
		{"Connect", connect.WithProtoJSON()},
		{"gRPC", connect.WithGRPC()},
		{"gRPC-Web", connect.WithGRPCWeb()},
	} {
		client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](&http.Client{Transport: transport}, url+procedure,
			protocol.option, connect.WithInterceptors(connect.UnaryInterceptorFunc(retry)))

		for range 4 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			start := time.Now()
			response, err := client.CallUnary(ctx, connect.NewRequest(wrapperspb.String(protocol.name)))
			cancel()

			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s after %v, remaining %s\n", response.Msg.GetValue(), time.Since(start).Round(100*time.Millisecond), response.Header().Get("RateLimit-Remaining"))
		}
	}
	return nil
}
