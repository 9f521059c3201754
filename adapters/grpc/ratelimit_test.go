package ratelimit_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/internal/test/rpctest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// What the adapters of gRPC and Connect have in common.
func TestCommon(t *testing.T) {
	authenticate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(rpctest.Authenticate(ctx), req)
	}
	rpctest.Test(t, rpctest.Adapter{
		Procedures: []string{unaryCall, duplexCall},
		Serve: func(t testing.TB, h rpctest.Handler, limits ...*middleware.Limiter) rpctest.Call {
			unary, stream := []grpc.UnaryServerInterceptor{authenticate}, []grpc.StreamServerInterceptor{}
			for _, l := range limits {
				unary, stream = append(unary, ratelimit.From(l).Unary()), append(stream, ratelimit.From(l).Stream())
			}
			conn := dial(t, serve(t, &service{handler: h}, grpc.ChainUnaryInterceptor(unary...), grpc.ChainStreamInterceptor(stream...)))
			return func(ctx context.Context, procedure string, header http.Header) rpctest.Answer {
				md := metadata.MD{}
				for name, values := range header {
					md.Append(name, values...)
				}
				ctx = metadata.NewOutgoingContext(ctx, md)
				do := map[string]func(context.Context, *grpc.ClientConn) answer{unaryCall: call, duplexCall: converse}[procedure]
				a, fields := do(ctx, conn), http.Header{}
				for name, values := range metadata.Join(a.header, a.trailer) {
					fields[http.CanonicalHeaderKey(name)] = values
				}
				return rpctest.Answer{Code: uint32(a.Code()), Message: a.Message(), Fields: fields, Details: a.Details()}
			}
		},
		Intercept: func(ctx context.Context, l *middleware.Limiter) uint32 {
			handler := func(context.Context, any) (any, error) { return nil, nil }
			_, err := ratelimit.From(l).Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, handler)
			return uint32(status.Code(err))
		},
	})
	rpctest.Panics(t, unaryCall, ratelimit.New, ratelimit.From)
}

// Where the fields are, once, and the pushback of a denial. A handler may fail, or send header metadata itself. A
// client does not retry a call that has header metadata, or two pushbacks.
func TestWhereTheFieldsAre(t *testing.T) {
	sent := metadata.Pairs("own", "x")
	type duplex = grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]
	failed := status.Error(codes.NotFound, "no such thing")
	answers := func(context.Context, func() error) error { return nil }
	once := ratelimit.Policy{Limit: gcra.PerHour(1)}
	never := ratelimit.Policy{Limit: gcra.PerMinute(1), Cost: func(*http.Request) int64 { return 2 }}
	closed := ratelimit.Policy{Limit: gcra.PerMinute(1), OnFailure: middleware.FailClosed}

	for _, test := range []struct {
		name      string
		unary     rpctest.Handler
		duplex    func(duplex) error
		policy    ratelimit.Policy // by default 5 a minute
		remaining string           // by default 4
		inTrailer bool
		pushback  string
	}{
		{name: "unary", unary: answers},
		{name: "unary fails", unary: func(context.Context, func() error) error { return failed }, inTrailer: true},
		{name: "unary panics", unary: func(context.Context, func() error) error { panic("of the handler") }, inTrailer: true},
		{name: "unary sets the header", unary: func(ctx context.Context, _ func() error) error { return grpc.SetHeader(ctx, sent) }},
		{name: "unary sends the header", inTrailer: true,
			unary: func(ctx context.Context, _ func() error) error { return grpc.SendHeader(ctx, sent) }},
		{name: "stream without messages", duplex: func(duplex) error { return nil }},
		{name: "stream fails", duplex: func(duplex) error { return failed }, inTrailer: true},
		{name: "stream sends the header", duplex: func(s duplex) error { return s.SendHeader(sent) }},
		{name: "stream sends the header, then fails", duplex: func(s duplex) error { return errors.Join(s.SendHeader(sent), failed) }},
		{name: "stream sends, then fails", duplex: func(s duplex) error {
			return errors.Join(s.Send(new(pb.StreamingOutputCallResponse)), failed)
		}},

		{name: "denied", unary: answers, policy: once, remaining: "0", inTrailer: true, pushback: "3600000"},
		{name: "stream denied", duplex: func(duplex) error { return nil }, policy: once, remaining: "0", inTrailer: true, pushback: "3600000"},
		{name: "no wait helps", unary: answers, policy: never, remaining: "none", inTrailer: true, pushback: "-1"},
		{name: "not decided", unary: answers, policy: closed, remaining: "none", inTrailer: true, pushback: "1000"},
	} {
		store := doubles.NewStore()
		policy := ratelimit.Policy{Name: "minute", Key: key("k"), Limit: gcra.PerMinute(5)}
		if test.policy.Limit.Count > 0 {
			policy.Limit, policy.Cost, policy.OnFailure = test.policy.Limit, test.policy.Cost, test.policy.OnFailure
		}
		cfg := ratelimit.Config{Store: store, Logger: slog.New(slog.DiscardHandler)}
		outer := ratelimit.New(cfg, ratelimit.Policy{Name: "outer", Key: key("k"), Limit: gcra.PerMinute(1000)})
		limit := ratelimit.New(cfg, policy)
		conn := dial(t, serve(t, &service{handler: test.unary, duplex: test.duplex},
			grpc.ChainUnaryInterceptor(recovers, outer.Unary(), limit.Unary()), grpc.ChainStreamInterceptor(outer.Stream(), limit.Stream())))

		do := map[bool]func(context.Context, *grpc.ClientConn) answer{true: call, false: converse}[test.unary != nil]
		store.SetDown(policy.OnFailure == middleware.FailClosed)
		a := do(t.Context(), conn)
		if test.remaining == "0" { // the second call is denied
			a = do(t.Context(), conn)
		}

		with, without := a.header, a.trailer
		if test.inTrailer {
			with, without = without, with
		}
		want, pushback := strings.TrimPrefix(cmp.Or(test.remaining, "4"), "none"), first(a.trailer, "grpc-retry-pushback-ms")
		if first(with, "ratelimit-remaining") != want || first(without, "ratelimit-remaining") != "" || pushback != test.pushback {
			t.Errorf("%s: got header %v, trailer %v; want %q left in the trailer: %t, pushback %q",
				test.name, a.header, a.trailer, want, test.inTrailer, test.pushback)
		}
		if test.pushback != "" && len(a.header) != 0 {
			t.Errorf("%s: got header %v; want none", test.name, a.header)
		}
	}
}

func recovers(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "panic")
		}
	}()
	return next(ctx, req)
}
