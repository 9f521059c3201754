package middleware_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// leftOf is what a Decision says is left: "rate 9 of 10, until 6s".
func leftOf(d *middleware.Decision) string {
	var all []string
	for _, p := range d.Results {
		name := p.Policy
		if p.Shadow {
			name += " (shadow)"
		}
		all = append(all, fmt.Sprintf("%s %d of %d, until %v", name, p.Remaining, p.Limit.Capacity(), p.ResetAfter))
	}
	return strings.Join(all, "; ")
}

// Peek asks the policies that Decide would charge, and charges none, however often it
// is called and whatever the request would cost.
func TestPeek(t *testing.T) {
	store, _ := newStore() // 1 January 2026
	observed := 0
	l := limiter(t, middleware.Config{Store: store, Observe: func(*http.Request, *middleware.Decision) { observed++ }},
		middleware.Policy{Name: "rate", Key: key("k"), Limit: gcra.PerMinute(10), Cost: func(r *http.Request) int64 { return r.ContentLength }},
		middleware.Policy{Name: "monthly", Key: key("k"), Limit: gcra.Quota(100, gcra.Monthly)},
		middleware.Policy{Name: "login", Key: key("k"), Limit: five, Routes: []string{"POST /login"}},
		middleware.Policy{Name: "guests", Key: key("k"), Limit: five, Skip: func(r *http.Request) bool { return r.Header.Get("User") != "" }},
		middleware.Policy{Name: "plan", Key: key("k"), LimitFor: func(r *http.Request) gcra.Limit {
			return map[string]gcra.Limit{"pro": gcra.PerMinute(600), "": gcra.Unlimited()}[r.Header.Get("Plan")]
		}},
		middleware.Policy{Name: "new", Key: key("k"), Limit: gcra.PerMinute(1), Shadow: true})

	post := func(length int64, headers ...string) *http.Request {
		r := get("/usage")
		r.ContentLength = length
		for _, h := range headers {
			r.Header.Set(h, "pro")
		}
		return r
	}

	const fresh = "rate 10 of 10, until 0s; monthly 100 of 100, until 744h0m0s; guests 5 of 5, until 0s; new (shadow) 1 of 1, until 0s"
	for range 3 {
		if d := l.Peek(post(-1)); leftOf(d) != fresh || !d.Allowed || d.Err != nil {
			t.Fatalf("got %+v\n%s\nwant  %s", d, leftOf(d), fresh)
		}
	}

	if observed != 0 {
		t.Errorf("an observer was called %d times; want 0", observed)
	}

	if d := l.Decide(post(7)); !d.Allowed {
		t.Fatalf("the first request: got %+v", d)
	}

	const used = "rate 3 of 10, until 42s; monthly 99 of 100, until 744h0m0s; guests 4 of 5, until 12s; new (shadow) 0 of 1, until 1m0s"
	for range 3 {
		d := l.Peek(post(7))
		if err := errors.Join(d.Spend(t.Context(), 2, "rate"), d.Settle(t.Context(), 3, "rate"), d.Refund(t.Context())); err != nil || leftOf(d) != used || !d.Allowed {
			t.Fatalf("after a request: got %v, %s\nwant %s", err, leftOf(d), used)
		}
	}

	const pro = "rate 3 of 10, until 42s; monthly 99 of 100, until 744h0m0s; plan 600 of 600, until 0s; new (shadow) 0 of 1, until 1m0s"
	if got := leftOf(l.Peek(post(0, "User", "Plan"))); got != pro {
		t.Errorf("a user with a plan:\ngot  %s\nwant %s", got, pro)
	}

	login := get("/login")
	login.Method = http.MethodPost
	if got := leftOf(l.Peek(login)); !strings.Contains(got, "login 5 of 5, until 0s") {
		t.Errorf("POST /login: got %s; want the policy login", got)
	}

	if store.Refunds != 0 {
		t.Errorf("got %d refunds; want 0", store.Refunds)
	}
}

var untilWhen = regexp.MustCompile(`, until [^;]+`)

// While the store fails, each policy follows its OnFailure.
func TestPeekWhileTheStoreFails(t *testing.T) {
	store, _ := newStore()
	local := middleware.Policy{Name: "local", Key: key("k"), Limit: gcra.PerMinute(10)}
	quota := middleware.Policy{Name: "quota", Key: key("k"), Limit: gcra.Quota(100, gcra.Monthly)}
	open := middleware.Policy{Name: "open", Key: key("k"), Limit: five, OnFailure: middleware.FailOpen}
	closed := middleware.Policy{Name: "closed", Key: key("k"), Limit: five, OnFailure: middleware.FailClosed}

	for _, tt := range []struct {
		policies []middleware.Policy
		want     string
		status   int
		degraded []string
	}{
		{[]middleware.Policy{local, quota}, "local 5 of 10; quota 50 of 100", 200, []string{"local", "quota"}},
		{[]middleware.Policy{local, open}, "local 5 of 10", 200, []string{"local", "open"}},
		{[]middleware.Policy{open, closed}, "", 503, []string{"open", "closed"}},
	} {
		l := limiter(t, middleware.Config{Store: store, Instances: 2, Logger: unread}, tt.policies...)
		for range 2 {
			store.Fail = 1
			d := l.Peek(get("/"))
			got := untilWhen.ReplaceAllString(leftOf(d), "") // the local state has a clock of its own
			if got != tt.want || d.Status() != tt.status || !errors.Is(d.Err, errDown) || !slices.Equal(d.Degraded(), tt.degraded) {
				t.Errorf("got %s, %d, %v, %v; want %s, %d, %v, %v", got, d.Status(), d.Err, d.Degraded(), tt.want, tt.status, errDown, tt.degraded)
			}
		}
	}
}

// A key that fails shows the bucket of anonymous requests, by FailLocal.
func TestPeekWithoutAKey(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store, Logger: unread}, middleware.Policy{Name: "user", Key: keyPanics, Limit: five})
	if d := l.Peek(get("/")); d.Err == nil || leftOf(d) != "user 5 of 5, until 0s" || d.Results[0].Subject != "" {
		t.Errorf("got %+v; want an error and a full bucket", d)
	}
}

// What the keys of a Peek report is not about the policy whose Key peeks.
func TestPeekInAKey(t *testing.T) {
	var log diagtest.Log
	store, _ := newStore()
	other := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "other", Key: keyfunc.Route, Limit: five})
	l := limiter(t, middleware.Config{Store: store, Logger: log.Logger()}, middleware.Policy{Name: "plan", Limit: gcra.PerHour(1000), Key: func(r *http.Request) (string, error) {
		return leftOf(other.Peek(r)), nil
	}})

	for range 200 {
		l.Decide(get("/"))
	}

	if lines := log.Lines(); len(lines) > 0 {
		t.Errorf("got %v; want no line", lines)
	}
}

// What Peek sees is not among the first requests of a policy, by which a limiter finds
// mistakes: its requests are others.
func TestPeekIsNoFirstRequest(t *testing.T) {
	var log diagtest.Log
	store, _ := newStore()
	plan := func(r *http.Request) gcra.Limit {
		if r.URL.Path == "/usage" {
			return gcra.Unlimited()
		}
		return five
	}

	l := limiter(t, middleware.Config{Store: store, Logger: log.Logger()},
		middleware.Policy{Name: "all", Key: key(""), Limit: five},
		middleware.Policy{Name: "plan", Key: key("k"), LimitFor: plan})

	l.Decide(get("/"))
	for range 200 {
		l.Peek(get("/usage"))
	}

	if lines := log.Lines(); len(lines) > 0 {
		t.Errorf("got %v; want no line", lines)
	}
}
