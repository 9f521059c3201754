package ratelimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
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
)

// What the adapters of gRPC and Connect have in common.
func TestCommon(t *testing.T) {
	authenticate := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(rpctest.Authenticate(ctx), req)
	}
	rpctest.Test(t, rpctest.Adapter{
		Procedures: []string{unaryCall, duplexCall},
		Serve: func(t testing.TB, h rpctest.Handler, limits ...*ratelimit.Limiter) rpctest.Call {
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
		Intercept: func(ctx context.Context, l *ratelimit.Limiter) uint32 {
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
	never := ratelimit.Policy{Limit: gcra.PerMinute(1), Cost: func(*http.Request) int64 { return 2 }}
	closed := ratelimit.Policy{Limit: gcra.PerMinute(1), OnFailure: ratelimit.FailClosed}

	for _, test := range []struct {
		name      string
		unary     rpctest.Handler
		duplex    func(duplex) error
		policy    ratelimit.Policy // by default 5 a minute
		remaining string
		inTrailer bool
		pushback  string
	}{
		{"unary", answers, nil, ratelimit.Policy{}, "4", false, ""},
		{"unary fails", func(context.Context, func() error) error { return failed }, nil, ratelimit.Policy{}, "4", true, ""},
		{"unary panics", func(context.Context, func() error) error { panic("of the handler") }, nil, ratelimit.Policy{}, "4", true, ""},
		{"unary sets the header", func(ctx context.Context, _ func() error) error { return grpc.SetHeader(ctx, sent) }, nil, ratelimit.Policy{}, "4", false, ""},
		{"unary sends the header", func(ctx context.Context, _ func() error) error { return grpc.SendHeader(ctx, sent) }, nil, ratelimit.Policy{}, "4", true, ""},
		{"stream without messages", nil, func(duplex) error { return nil }, ratelimit.Policy{}, "4", false, ""},
		{"stream fails", nil, func(duplex) error { return failed }, ratelimit.Policy{}, "4", true, ""},
		{"stream sends the header", nil, func(s duplex) error { return s.SendHeader(sent) }, ratelimit.Policy{}, "4", false, ""},
		{"stream sends the header, then fails", nil, func(s duplex) error { return errors.Join(s.SendHeader(sent), failed) }, ratelimit.Policy{}, "4", false, ""},
		{"stream sends, then fails", nil, func(s duplex) error { return errors.Join(s.Send(new(pb.StreamingOutputCallResponse)), failed) }, ratelimit.Policy{}, "4", false, ""},

		{"denied", answers, nil, ratelimit.Policy{Limit: gcra.PerHour(1)}, "0", true, "3600000"},
		{"stream denied", nil, func(duplex) error { return nil }, ratelimit.Policy{Limit: gcra.PerHour(1)}, "0", true, "3600000"},
		{"no wait helps", answers, nil, never, "", true, "-1"},
		{"not decided", answers, nil, closed, "", true, "1000"},
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
		store.Fails.Store(policy.OnFailure == ratelimit.FailClosed)
		a := do(t.Context(), conn)
		if test.pushback == "3600000" {
			a = do(t.Context(), conn)
		}

		with, without := a.header, a.trailer
		if test.inTrailer {
			with, without = without, with
		}
		if first(with, "ratelimit-remaining") != test.remaining || first(without, "ratelimit-remaining") != "" || first(a.trailer, "grpc-retry-pushback-ms") != test.pushback {
			t.Errorf("%s: got header %v, trailer %v; want the fields in the trailer: %t", test.name, a.header, a.trailer, test.inTrailer)
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
