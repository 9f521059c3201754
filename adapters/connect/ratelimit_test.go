package ratelimit_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/rpctest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// What the adapters of gRPC and Connect have in common, with each protocol over each version of HTTP, for handlers that
// are mounted below a path. Streams in both directions need HTTP/2.
func TestCommon(t *testing.T) {
	authenticate := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			return next(rpctest.Authenticate(ctx), req)
		}
	})
	adapter := func(over transport, options []connect.ClientOption) rpctest.Adapter {
		a := rpctest.Adapter{Procedures: []string{unaryCall, streamCall}}
		if over.protocols.UnencryptedHTTP2() {
			a.Procedures = append(a.Procedures, duplexCall)
		}
		a.Serve = func(t testing.TB, h rpctest.Handler, limits ...*middleware.Limiter) rpctest.Call {
			interceptors := []connect.Interceptor{authenticate}
			for _, l := range limits {
				interceptors = append(interceptors, ratelimit.From(l))
			}
			mux := http.NewServeMux()
			mux.Handle("/api/", http.StripPrefix("/api", handler(h, connect.WithInterceptors(interceptors...))))
			s := serve(t, over, mux).with(options...)
			s.url += "/api"
			return s.call
		}
		a.Intercept = func(ctx context.Context, l *middleware.Limiter) uint32 {
			next := func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, nil }
			_, err := ratelimit.From(l).WrapUnary(next)(ctx, connect.NewRequest(new(emptypb.Empty)))
			if err == nil {
				return 0
			}
			return uint32(connect.CodeOf(err))
		}
		return a
	}

	for _, over := range transports() {
		for protocol, options := range protocols {
			t.Run(protocol+" "+over.name, func(t *testing.T) { rpctest.Test(t, adapter(over, options)) })
		}
	}
	rpctest.Panics(t, unaryCall, ratelimit.New, ratelimit.From)
}

// A denied call of the Connect protocol has the status and the fields of HTTP, so that
// clients without Connect understand it. One that came as a GET is not cached, and gets
// past no policy for POST.
func TestStatus(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1), Routes: []string{"POST " + getCall}})
	s := serve(t, transports()[0], handler(nil, connect.WithInterceptors(limit)))
	for _, want := range []string{"200 OK", "429 Too Many Requests"} {
		response, err := s.client.Get(s.url + getCall + "?encoding=json&message=%7B%7D&connect=v1")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		denied := want != "200 OK"
		notStored := response.Header.Get("Cache-Control") == "no-store" && response.Header.Get("Retry-After") == "3600"
		exhausted := strings.HasPrefix(string(body), `{"code":"resource_exhausted"`)
		if response.Status != want || denied != exhausted || denied != notStored {
			t.Errorf("got %s, %v, %s; want %s", response.Status, response.Header, body, want)
		}
	}
}

// In a client the interceptor would limit nothing, so it says so.
func TestClient(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1)})
	s := serve(t, transports()[1], handler(nil)).with(connect.WithInterceptors(limit))
	for _, procedure := range []string{unaryCall, streamCall, duplexCall} {
		if a := s.call(t.Context(), procedure, nil); a.Code != uint32(connect.CodeInternal) || !strings.Contains(a.Message, "outbound/httpclient") {
			t.Errorf("%s: got %+v; want an error that says what to use", procedure, a)
		}
	}
}
