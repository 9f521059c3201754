package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// refundFails is a store whose Refund fails.
type refundFails struct{ gcra.Store }

func (refundFails) Refund(context.Context, []gcra.Charge) error { return errDown }

// A request is charged, another policy denies it, and the refund fails.
func TestRefundFailsIsLogged(t *testing.T) {
	log := new(diagtest.Log)
	l := limiter(t, middleware.Config{Store: refundFails{gcra.NewMemory()}, Logger: log.Logger()},
		middleware.Policy{Name: "there", Key: key("k"), Limit: five},
		middleware.Policy{Name: "here", Key: keyFails, Limit: gcra.PerHour(1)})
	for range 3 {
		l.Decide(get("/"))
	}
	lines := log.Lines()
	if len(lines) != 2 || lines[0].Code() != diag.PolicyFailed || lines[1].Code() != diag.StoreFailed ||
		lines[1].Attrs["requests"] != "charged although they are denied" {
		t.Errorf("got %v; want the policy, and the refund once", lines)
	}
}

// First requests that come at once are still counted one by one.
func TestFirstRequestsAtOnce(t *testing.T) {
	for _, test := range []struct {
		name  string
		key   keyfunc.Func
		skips bool
	}{
		{"anonymous", key(""), false},
		{"no user", keyfunc.Subject(func(context.Context) string { return "" }), false},
		{"for users only", key(""), true},
	} {
		log := new(diagtest.Log)
		l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
			middleware.Policy{Name: "p", Key: test.key, Limit: five, SkipAnonymous: test.skips})

		ask := func(n int) {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					for range n / 10 {
						l.Allow(httptest.NewRecorder(), get("/"))
					}
				})
			}
			all.Wait()
		}

		ask(90)
		if lines := log.Lines(); len(lines) > 0 {
			t.Errorf("%s: got %v after 90 requests; want none yet", test.name, lines)
		}

		ask(500)
		if lines := log.Lines(); len(lines) != 1 || lines[0].Code() != diag.AnonymousOnly {
			t.Errorf("%s: got %v; want one line of anonymous-only", test.name, lines)
		}
	}
}

// A user is missed also if the address behind it has a problem of its own.
func TestTwoProblemsOfAKey(t *testing.T) {
	log := new(diagtest.Log)
	user := keyfunc.Subject(func(context.Context) string { return "" })
	l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
		middleware.Policy{Name: "p", Key: keyfunc.First(user, keyfunc.RemoteAddr), Limit: five})

	for range 200 {
		r := get("/")
		r.RemoteAddr = "10.0.0.1:1234"
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		l.Decide(r)
	}
	if lines := log.Lines(); len(lines) != 2 || lines[0].Code() != diag.ProxyIgnored || lines[1].Code() != diag.AnonymousOnly {
		t.Errorf("got %v; want the proxy that is ignored, and the user that is missed", lines)
	}
}

// A key function that an observer or a handler calls is not the policy's.
func TestKeyOutsideOfPolicy(t *testing.T) {
	log := new(diagtest.Log)
	observed := 0
	l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger(), Observe: func(r *http.Request, _ *middleware.Decision) {
		_, _ = keyfunc.RemoteAddr(r)
		observed++
	}}, middleware.Policy{Name: "p", Key: keyfunc.TrustedProxies("127.0.0.1"), Limit: five})
	r := get("/")
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	l.Decide(r)
	r, _ = l.Allow(httptest.NewRecorder(), r)
	_, _ = keyfunc.RemoteAddr(r)
	if lines := log.Lines(); observed != 2 || len(lines) > 0 {
		t.Errorf("got %v after %d decisions; want no line after 2", lines, observed)
	}
}

// Decide after Allow is a way to charge more, and a policy that asks for nothing charges nothing: neither is
// reported as limiter-twice.
func TestDecideAfterAllow(t *testing.T) {
	log := new(diagtest.Log)
	store := gcra.NewMemory()
	p := middleware.Policy{Name: "p", Key: key("k"), Limit: five}
	look := p
	look.Cost = func(*http.Request) int64 { return 0 }

	r, _ := limiter(t, middleware.Config{Store: store, Logger: log.Logger()}, look).Allow(httptest.NewRecorder(), get("/"))
	l := limiter(t, middleware.Config{Store: store, Logger: log.Logger()}, p)
	r, _ = l.Allow(httptest.NewRecorder(), r)
	l.Decide(r) // on purpose, for more units

	// Buckets of other subjects, calendars and stores are others.
	subject, calendar := p, p
	subject.Key, calendar.Limit = key("j"), gcra.Quota(5, gcra.Daily)
	for other, store := range map[*middleware.Policy]gcra.Store{&subject: store, &calendar: store, &p: gcra.NewMemory()} {
		limiter(t, middleware.Config{Store: store, Logger: log.Logger()}, *other).Allow(httptest.NewRecorder(), r)
	}
	if lines := log.Lines(); len(lines) > 0 {
		t.Errorf("got %v; want no line", lines)
	}

	l.Allow(httptest.NewRecorder(), r)
	if lines := log.Lines(); len(lines) != 1 || lines[0].Code() != diag.LimiterTwice || lines[0].Attrs["policy"] != "p" {
		t.Errorf("got %v; want one line of limiter-twice about p", lines)
	}
}
