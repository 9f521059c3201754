package ratelimit_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// each runs f for each procedure, with each protocol over each version of HTTP. Streams
// in both directions need HTTP/2.
func each(t *testing.T, f func(t *testing.T, protocol string, over transport, procedure string)) {
	for _, over := range transports() {
		for protocol := range protocols {
			for _, procedure := range []string{unaryCall, streamCall, duplexCall} {
				if procedure == duplexCall && over.protocols.HTTP1() {
					continue
				}
				t.Run(strings.Join([]string{protocol, over.name, procedure}, " "), func(t *testing.T) { f(t, protocol, over, procedure) })
			}
		}
	}
}

// Clients of all protocols get the same of an allowed call and of a denied one.
func TestDenial(t *testing.T) {
	each(t, func(t *testing.T, protocol string, over transport, procedure string) {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "minute", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1)},
			ratelimit.Policy{Name: "hour", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)},
			ratelimit.Policy{Name: "day", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(100)})
		s := serve(t, over, service{}.handler(connect.WithInterceptors(limit))).with(protocols[protocol]...)

		a := s.call(t.Context(), procedure)
		if a.code != 0 || !has(a.meta, "RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Policy: 1;w=3600", "Retry-After: ", "Cache-Control: ") {
			t.Errorf("allowed: got %v, %v; want the fields of hour", a.err, a.meta)
		}
		a = s.call(t.Context(), procedure)
		if a.code != connect.CodeResourceExhausted || a.err.Message() != "The call was denied because a rate limit is used up." {
			t.Fatalf("denied: got %v; want resource_exhausted", a.err)
		}
		if !has(a.meta, "RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 3600", "Retry-After: 3600", "Cache-Control: no-store") {
			t.Errorf("denied: got %v; want the fields of hour", a.meta)
		}
		wait, violations := details(t, a.err)
		if wait <= 59*time.Minute || wait > time.Hour || !slices.Equal(violations, []string{"minute", "hour"}) {
			t.Errorf("denied: got RetryInfo %v, violations %v; want nearly an hour, minute and hour", wait, violations)
		}
	})
}

// has reports whether the header has each of the lines once, and those without a value
// not at all.
func has(h http.Header, lines ...string) bool {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if got := h.Values(name); len(got) > 1 || strings.Join(got, "") != value {
			return false
		}
	}
	return true
}

// details returns the wait of RetryInfo, 0 if there is none, and the subjects of
// QuotaFailure.
func details(t *testing.T, e *connect.Error) (wait time.Duration, violations []string) {
	t.Helper()
	for _, d := range e.Details() {
		message, err := d.Value()
		if err != nil {
			t.Fatal(err)
		}
		switch d := message.(type) {
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

func TestFailClosed(t *testing.T) {
	each(t, func(t *testing.T, protocol string, over transport, procedure string) {
		limit := ratelimit.New(ratelimit.Config{Store: down{}},
			ratelimit.Policy{Name: "minute", Key: key("k"), Limit: gcra.PerMinute(1), OnFailure: ratelimit.FailClosed})
		a := serve(t, over, service{}.handler(connect.WithInterceptors(limit))).with(protocols[protocol]...).call(t.Context(), procedure)
		if a.code != connect.CodeUnavailable || strings.Contains(a.err.Message(), "down") {
			t.Fatalf("got %v; want unavailable, without the cause", a.err)
		}
		if wait, violations := details(t, a.err); wait != time.Second || violations != nil || !has(a.meta, "Retry-After: 1") {
			t.Errorf("got RetryInfo %v, violations %v, %v; want a second", wait, violations, a.meta)
		}
	})
}

// A call that the handler fails has the fields too.
func TestHandlerFails(t *testing.T) {
	each(t, func(t *testing.T, protocol string, over transport, procedure string) {
		if procedure == duplexCall {
			return // its handler does not fail
		}
		failed := connect.NewError(connect.CodeNotFound, nil)
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "minute", Key: key("k"), Limit: gcra.PerMinute(5)})
		s := serve(t, over, service{
			unary:  func(context.Context) error { return failed },
			stream: func(context.Context, *connect.ServerStream[emptypb.Empty]) error { return failed },
		}.handler(connect.WithInterceptors(limit))).with(protocols[protocol]...)
		for _, want := range []string{"RateLimit-Remaining: 4", "RateLimit-Remaining: 3"} {
			if a := s.call(t.Context(), procedure); a.code != connect.CodeNotFound || !has(a.meta, want) {
				t.Errorf("got %v, %v; want not_found, %s", a.err, a.meta, want)
			}
		}
	})
}

// A denied call of the Connect protocol has the status and the fields of HTTP, so that
// clients without Connect understand it. One that came as a GET is not cached, and gets
// past no policy for POST.
func TestStatus(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1), Routes: []string{"POST " + getCall}})
	s := serve(t, transports()[0], service{}.handler(connect.WithInterceptors(limit)))
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
		if response.Status != want || denied != strings.HasPrefix(string(body), `{"code":"resource_exhausted"`) || denied != has(response.Header, "Cache-Control: no-store", "Retry-After: 3600") {
			t.Errorf("got %s, %v, %s; want %s", response.Status, response.Header, body, want)
		}
	}
}

// Two limiters of one server write one set of fields, of the tighter one.
func TestStacked(t *testing.T) {
	each(t, func(t *testing.T, protocol string, over transport, procedure string) {
		store := gcra.NewMemory()
		outer := ratelimit.New(ratelimit.Config{Store: store}, ratelimit.Policy{Name: "outer", Key: key("k"), Limit: gcra.PerMinute(9)})
		inner := ratelimit.New(ratelimit.Config{Store: store}, ratelimit.Policy{Name: "inner", Key: key("k"), Limit: gcra.PerMinute(1)})
		s := serve(t, over, service{}.handler(connect.WithInterceptors(outer, inner))).with(protocols[protocol]...)
		for _, want := range []connect.Code{0, connect.CodeResourceExhausted} {
			if a := s.call(t.Context(), procedure); a.code != want || !has(a.meta, "RateLimit-Limit: 1", "RateLimit-Remaining: 0") {
				t.Errorf("got %v, %v; want code %d and the fields of inner", a.err, a.meta, want)
			}
		}
	})
}

// The handler of a stream charges its messages.
func TestSpend(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(5)})
	s := serve(t, transports()[1], service{stream: func(ctx context.Context, stream *connect.ServerStream[emptypb.Empty]) error {
		for range 3 {
			if err := ratelimit.FromContext(ctx).Spend(ctx, 1, "hour"); err != nil {
				return err
			}
			if err := stream.Send(new(emptypb.Empty)); err != nil {
				return err
			}
		}
		return nil
	}}.handler(connect.WithInterceptors(limit)))
	if a := s.call(t.Context(), streamCall); a.code != 0 || !has(a.meta, "RateLimit-Remaining: 4") {
		t.Errorf("stream: got %v, %v; want 4 left at the start", a.err, a.meta)
	}
	if a := s.call(t.Context(), unaryCall); a.code != 0 || !has(a.meta, "RateLimit-Remaining: 0") {
		t.Errorf("after one call and three messages: got %v, %v; want the last of 5", a.err, a.meta)
	}
}

// A call is held back no longer than its deadline, in each protocol's form of it.
func TestMaxDelay(t *testing.T) {
	each(t, func(t *testing.T, protocol string, over transport, procedure string) {
		limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
			ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1), MaxDelay: 2 * time.Hour})
		s := serve(t, over, service{}.handler(connect.WithInterceptors(limit))).with(protocols[protocol]...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, want := range []connect.Code{0, connect.CodeResourceExhausted} {
			if a := s.call(ctx, procedure); a.code != want {
				t.Errorf("got %v; want code %d at once", a.err, want)
			}
		}
	})
}

// A call that ends while it is held back ends as its context says.
func TestHeldBackCallEnds(t *testing.T) {
	decided := make(chan *ratelimit.Decision, 2)
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { decided <- d }},
		ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1), MaxDelay: 3 * time.Hour})
	ended := make(chan error, 2)
	log := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			response, err := next(ctx, req)
			ended <- err
			return response, err
		}
	})
	s := serve(t, transports()[1], service{}.handler(connect.WithInterceptors(log, limit)))
	s.call(t.Context(), unaryCall)
	<-decided
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-decided
		cancel()
	}()
	s.call(ctx, unaryCall)
	if err := <-ended; connect.CodeOf(err) != connect.CodeCanceled {
		t.Errorf("got %v; want canceled", err)
	}
}

// In a client the interceptor would limit nothing, so it says so.
func TestClient(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1)})
	s := serve(t, transports()[1], service{}.handler()).with(connect.WithInterceptors(limit))
	for _, procedure := range []string{unaryCall, streamCall, duplexCall} {
		if a := s.call(t.Context(), procedure); a.code != connect.CodeInternal || !strings.Contains(a.err.Message(), "outbound/httpclient") {
			t.Errorf("%s: got %v; want an error that says what to use", procedure, a.err)
		}
	}
}
