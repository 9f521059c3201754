package ratelimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// What a client sees of an allowed call and of a denied one.
func TestDenial(t *testing.T) {
	for name, do := range map[string]func(*grpc.ClientConn) answer{
		"unary":  func(conn *grpc.ClientConn) answer { return call(t.Context(), conn) },
		"stream": func(conn *grpc.ClientConn) answer { return converse(t, conn) },
	} {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "minute", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1)},
			ratelimit.Policy{Name: "hour", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)},
			ratelimit.Policy{Name: "day", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(100)})
		conn := dial(t, serve(t, new(service), limited(limit)...))

		a := do(conn)
		if a.Code() != codes.OK || first(a.header, "ratelimit-limit") != "1" || first(a.header, "ratelimit-remaining") != "0" ||
			first(a.header, "ratelimit-policy") != "1;w=3600" || first(a.header, "retry-after") != "" || a.trailer.Len() != 0 {
			t.Errorf("%s, allowed: got %v, header %v, trailer %v; want the fields of hour in the header", name, a.Status, a.header, a.trailer)
		}

		a = do(conn)
		if a.Code() != codes.ResourceExhausted || a.Message() != "The call was denied because a rate limit is used up." {
			t.Errorf("%s, denied: got %v; want ResourceExhausted", name, a.Status)
		}
		if len(a.header) != 0 || first(a.trailer, "ratelimit-remaining") != "0" || first(a.trailer, "ratelimit-reset") != "3600" || first(a.trailer, "retry-after") != "3600" {
			t.Errorf("%s, denied: got header %v, trailer %v; want the fields of hour in the trailer, and no header", name, a.header, a.trailer)
		}
		wait, violations := details(t, a.Status)
		if wait <= 59*time.Minute || wait > time.Hour {
			t.Errorf("%s, denied: got RetryInfo %v; want nearly an hour", name, wait)
		}
		if pushback, err := time.ParseDuration(first(a.trailer, "grpc-retry-pushback-ms") + "ms"); err != nil || pushback < wait || pushback-wait >= time.Millisecond {
			t.Errorf("%s, denied: got pushback %v, %v; want %v rounded up", name, pushback, err, wait)
		}
		if want := []string{"minute", "hour"}; !slices.Equal(violations, want) {
			t.Errorf("%s, denied: got violations %v; want %v", name, violations, want)
		}
	}
}

// details returns the wait of RetryInfo, 0 if there is none, and the subjects of
// QuotaFailure.
func details(t *testing.T, s *status.Status) (wait time.Duration, violations []string) {
	t.Helper()
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				violations = append(violations, v.GetSubject())
			}
		default:
			t.Errorf("got a detail %T", d)
		}
	}
	return wait, violations
}

// No wait helps a call that costs more than the limit ever allows.
func TestNever(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler)},
		ratelimit.Policy{Name: "minute", Key: key("k"), Limit: gcra.PerMinute(1), Cost: func(*http.Request) int64 { return 2 }})
	a := call(t.Context(), dial(t, serve(t, new(service), limited(limit)...)))
	wait, violations := details(t, a.Status)
	if a.Code() != codes.ResourceExhausted || wait != 0 || first(a.trailer, "retry-after") != "" || first(a.trailer, "grpc-retry-pushback-ms") != "-1" || !slices.Equal(violations, []string{"minute"}) {
		t.Errorf("got %v, RetryInfo %v, violations %v, trailer %v; want no wait and pushback -1", a.Status, wait, violations, a.trailer)
	}
}

func TestFailClosed(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: down{}},
		ratelimit.Policy{Name: "minute", Key: key("k"), Limit: gcra.PerMinute(1), OnFailure: ratelimit.FailClosed})
	a := call(t.Context(), dial(t, serve(t, new(service), limited(limit)...)))
	wait, violations := details(t, a.Status)
	if a.Code() != codes.Unavailable || strings.Contains(a.Message(), "down") || wait != time.Second || violations != nil ||
		first(a.trailer, "grpc-retry-pushback-ms") != "1000" || first(a.trailer, "retry-after") != "1" {
		t.Errorf("got %v, RetryInfo %v, violations %v, trailer %v; want Unavailable for a second, without the cause", a.Status, wait, violations, a.trailer)
	}
}

// A handler may fail, and may send header metadata itself. The fields reach the
// client all the same, once.
func TestWhereTheFieldsAre(t *testing.T) {
	sent := metadata.Pairs("own", "x")
	type duplex = grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]
	failed := status.Error(codes.NotFound, "no such thing")
	for _, test := range []struct {
		name      string
		unary     func(context.Context) error
		duplex    func(duplex) error
		inTrailer bool
	}{
		{"unary", func(context.Context) error { return nil }, nil, false},
		{"unary fails", func(context.Context) error { return failed }, nil, true},
		{"unary sets the header", func(ctx context.Context) error { return grpc.SetHeader(ctx, sent) }, nil, false},
		{"unary sends the header", func(ctx context.Context) error { return grpc.SendHeader(ctx, sent) }, nil, true},
		{"stream without messages", nil, func(duplex) error { return nil }, false},
		{"stream fails", nil, func(duplex) error { return failed }, true},
		{"stream sends the header", nil, func(s duplex) error { return s.SendHeader(sent) }, false},
		{"stream sends the header, then fails", nil, func(s duplex) error { return errors.Join(s.SendHeader(sent), failed) }, false},
		{"stream sends, then fails", nil, func(s duplex) error { return errors.Join(s.Send(new(pb.StreamingOutputCallResponse)), failed) }, false},
	} {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "minute", Key: key("k"), Limit: gcra.PerMinute(5)})
		conn := dial(t, serve(t, &service{unary: test.unary, duplex: test.duplex}, limited(limit)...))
		var a answer
		if test.unary != nil {
			a = call(t.Context(), conn)
		} else {
			a = drain(t, conn)
		}
		with, without := a.header, a.trailer
		if test.inTrailer {
			with, without = without, with
		}
		if first(with, "ratelimit-remaining") != "4" || first(without, "ratelimit-remaining") != "" || first(a.trailer, "grpc-retry-pushback-ms") != "" {
			t.Errorf("%s: got header %v, trailer %v; want the fields in the trailer: %t", test.name, a.header, a.trailer, test.inTrailer)
		}
	}
}

// drain opens a stream and reads it to its end.
func drain(t *testing.T, conn *grpc.ClientConn) (a answer) {
	t.Helper()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(t.Context())
	for err == nil {
		_, err = stream.Recv()
	}
	a.Status = status.Convert(err)
	a.header, _ = stream.Header() // without one the error is that of the stream
	a.trailer = stream.Trailer()
	return a
}

// Two limiters of one server write one set of fields, of the tighter one, and one
// pushback: a client does not retry a call with two.
func TestStacked(t *testing.T) {
	store := gcra.NewMemory()
	outer := ratelimit.New(ratelimit.Config{Store: store}, ratelimit.Policy{Name: "outer", Key: key("k"), Limit: gcra.PerMinute(9)})
	inner := ratelimit.New(ratelimit.Config{Store: store}, ratelimit.Policy{Name: "inner", Key: key("k"), Limit: gcra.PerMinute(1)})
	conn := dial(t, serve(t, new(service),
		grpc.ChainUnaryInterceptor(outer.Unary(), inner.Unary()), grpc.ChainStreamInterceptor(outer.Stream(), inner.Stream())))
	if a := converse(t, conn); a.Code() != codes.OK || first(a.header, "ratelimit-limit") != "1" || first(a.header, "ratelimit-remaining") != "0" {
		t.Errorf("allowed: got %v, header %v; want the fields of inner", a.Status, a.header)
	}
	a := call(t.Context(), conn)
	pushback := first(a.trailer, "grpc-retry-pushback-ms")
	if a.Code() != codes.ResourceExhausted || len(pushback) != 5 || first(a.trailer, "ratelimit-limit") != "1" {
		t.Errorf("denied: got %v, trailer %v; want one pushback of nearly 60000, and the fields of inner", a.Status, a.trailer)
	}
}

// The handler of a stream charges its messages.
func TestSpend(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(5)})
	conn := dial(t, serve(t, &service{duplex: func(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
		for range 3 {
			if err := ratelimit.FromContext(s.Context()).Spend(s.Context(), 1, "hour"); err != nil {
				return err
			}
			if err := s.Send(new(pb.StreamingOutputCallResponse)); err != nil {
				return err
			}
		}
		return nil
	}}, limited(limit)...))
	if a := drain(t, conn); first(a.header, "ratelimit-remaining") != "4" {
		t.Errorf("stream: got %v, header %v; want 4 left at the start", a.Status, a.header)
	}
	if a := call(t.Context(), conn); a.Code() != codes.OK || first(a.header, "ratelimit-remaining") != "0" {
		t.Errorf("after one call and three messages: got %v, header %v; want the last of 5", a.Status, a.header)
	}
}

// A call is held back no longer than its deadline.
func TestMaxDelay(t *testing.T) {
	var held []time.Duration
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { held = append(held, d.Delay) }},
		ratelimit.Policy{Name: "calls", Key: key("k"), Limit: gcra.Limit{Count: 1, Per: 100 * time.Millisecond}, MaxDelay: time.Hour},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1), MaxDelay: 2 * time.Hour, Routes: []string{duplexCall}})
	conn := dial(t, serve(t, new(service), limited(limit)...))
	for range 2 {
		if a := call(t.Context(), conn); a.Code() != codes.OK {
			t.Errorf("got %v; want OK", a.Status)
		}
	}
	if len(held) != 2 || held[0] != 0 || held[1] <= 0 {
		t.Errorf("got delays %v; want one for the second call", held)
	}

	if a := converse(t, conn); a.Code() != codes.OK {
		t.Errorf("first stream: got %v; want OK", a.Status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("second stream, an hour of delay and 10 seconds to the deadline: got %v; want ResourceExhausted at once", err)
	}
}

// A call that ends while it is held back ends as its context says, and is charged, or
// clients could avoid charges.
func TestHeldBackCallEnds(t *testing.T) {
	decided := make(chan *ratelimit.Decision, 3)
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { decided <- d }},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1), MaxDelay: 3 * time.Hour})
	unary := limit.Unary()
	info := &grpc.UnaryServerInfo{FullMethod: unaryCall}
	handler := func(context.Context, any) (any, error) { return new(pb.SimpleResponse), nil }
	if _, err := unary(t.Context(), nil, info, handler); err != nil {
		t.Fatal(err)
	}
	<-decided
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := unary(ctx, nil, info, handler)
		ended <- err
	}()
	<-decided
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Errorf("got %v; want Canceled", err)
	}
	// It arrives canceled, and is charged too.
	if _, err := unary(ctx, nil, info, handler); status.Code(err) != codes.Canceled {
		t.Errorf("got %v; want Canceled", err)
	}
	if d := <-decided; d.Delay <= 119*time.Minute {
		t.Errorf("third call: got delay %v; want nearly two hours, as the second is charged", d.Delay)
	}
}

// A call whose handler panics has the RateLimit fields of a call that fails.
func TestPanicHasFields(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "calls", Key: key("k"), Limit: gcra.PerMinute(10)})
	recovers := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "panic")
			}
		}()
		return next(ctx, req)
	}

	panics := &service{unary: func(context.Context) error { panic("of the handler") }}
	a := call(t.Context(), dial(t, serve(t, panics, grpc.ChainUnaryInterceptor(recovers, limit.Unary()))))
	if got := a.trailer.Get("ratelimit-remaining"); a.Code() != codes.Internal || len(got) != 1 || got[0] != "9" {
		t.Errorf("got %v, trailer %v; want Internal and ratelimit-remaining 9", a.Status, a.trailer)
	}
}
