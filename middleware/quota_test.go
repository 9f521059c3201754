package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A rate and a monthly quota: the quota gives all back when the month ends, and the
// fields say how long the month is and when it ends.
func TestQuotaHeaders(t *testing.T) {
	store, clock := newStore() // 1 January 2026
	clock.Add(31 * 24 * time.Hour)
	l := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersDraft6 | middleware.HeadersXRateLimit},
		middleware.Policy{Name: "rate", Key: key("k"), Limit: gcra.PerSecond(10)},
		middleware.Policy{Name: "monthly", Key: key("k"), Limit: gcra.Quota(2, gcra.Monthly)})

	lists := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersDraft11},
		middleware.Policy{Name: "rate", Key: key("j"), Limit: gcra.PerSecond(10)},
		middleware.Policy{Name: "monthly", Key: key("j"), Limit: gcra.Quota(2, gcra.Monthly)})

	for _, tt := range []struct {
		after time.Duration
		want  string // status, fields
	}{
		{0, "200 2;w=2419200, 2 limit, 1 left, reset 2147483, retry "},
		{27 * 24 * time.Hour, "200 2;w=2419200, 2 limit, 0 left, reset 86400, retry "},
		{23 * time.Hour, "429 2;w=2419200, 2 limit, 0 left, reset 3600, retry 3600"},
		{time.Hour - 1, "429 2;w=2419200, 2 limit, 0 left, reset 1, retry 1"},
		{1, "200 2;w=2678400, 2 limit, 1 left, reset 2147483, retry "}, // March has 31 days
	} {
		clock.Add(tt.after)
		res, d := allow(l, get("/"))
		h := res.Header
		got := strings.Join([]string{res.Status[:3], " ", h.Get("RateLimit-Policy"), ", ", h.Get("RateLimit-Limit"), " limit, ", h.Get("RateLimit-Remaining"),
			" left, reset ", h.Get("RateLimit-Reset"), ", retry ", h.Get("Retry-After")}, "")
		if got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}

		if h.Get("X-RateLimit-Reset") != h.Get("RateLimit-Reset") || h.Get("X-RateLimit-Limit") != "2" {
			t.Errorf("got X-RateLimit-Reset %s, -Limit %s; want as RateLimit-Reset, 2", h.Get("X-RateLimit-Reset"), h.Get("X-RateLimit-Limit"))
		}

		if n := len(d.Results); n != 2 || d.Results[1].Limit != gcra.Quota(2, gcra.Monthly) {
			t.Errorf("got %+v; want both policies", d.Results)
		}
	}

	res, _ := allow(lists, get("/"))
	if got, want := res.Header.Get("RateLimit-Policy"), `"rate";q=10;w=1, "monthly";q=2;w=2678400`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	if got, want := res.Header.Get("RateLimit"), `"rate";r=9;t=1, "monthly";r=1;t=2147483`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The plans of docs/limits.md: draft 11 names the rate and the quota, draft 6 shows the one
// with fewer units left, and its w tells which.
func TestHeadersOfAPlan(t *testing.T) {
	store, clock := newStore() // 1 January 2026
	pro := func(yes, no gcra.Limit) func(*http.Request) gcra.Limit {
		return func(r *http.Request) gcra.Limit {
			if r.URL.Path == "/pro" {
				return yes
			}
			return no
		}
	}

	path := func(r *http.Request) (string, error) { return r.URL.Path, nil }
	l := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersDraft6 | middleware.HeadersDraft11},
		middleware.Policy{Name: "rate", Key: path, LimitFor: pro(gcra.PerMinute(600).WithBurst(1_200), gcra.PerMinute(60))},
		middleware.Policy{Name: "monthly", Key: path, LimitFor: pro(gcra.Quota(1_000_000, gcra.Monthly.From(15)), gcra.Quota(10_000, gcra.Monthly))})

	draft6 := limiter(t, middleware.Config{Store: store}, l.Policies()...)
	for _, tt := range []struct {
		what         string
		after        time.Duration
		path         string
		used         int64 // of the month before
		draft6, want string
	}{
		{"the first", 0, "/free", 0, "60;w=60, 59 of 60, reset 1", `"rate";q=60;w=60, "monthly";q=10000;w=2678400 and "rate";r=59;t=1, "monthly";r=9999;t=2147483`},
		{"the first", 0, "/pro", 0, "600;w=60, 1199 of 1200, reset 1", `"rate";q=600;w=60, "monthly";q=1000000;w=2678400 and "rate";r=1199;t=1, "monthly";r=999999;t=1209600`},
		{"near the end of the quota", time.Minute, "/free", 9_970, "10000;w=2678400, 28 of 10000, reset 2147483", `"rate";q=60;w=60, "monthly";q=10000;w=2678400 and "rate";r=59;t=1, "monthly";r=28;t=2147483`},
		{"at its end", time.Minute, "/free", 27, "10000;w=2678400, 0 of 10000, reset 2147483", `"rate";q=60;w=60, "monthly";q=10000;w=2678400 and "rate";r=59;t=1, "monthly";r=0;t=2147483`},
		{"behind it", time.Minute, "/free", 0, "10000;w=2678400, 0 of 10000, reset 2147483", `"rate";q=60;w=60, "monthly";q=10000;w=2678400 and "rate";r=60, "monthly";r=0;t=2147483`},
	} {
		clock.Add(tt.after)
		if tt.used > 0 {
			if _, err := gcra.Take(t.Context(), store, gcra.Charge{Subject: tt.path, Policy: "monthly", Limit: gcra.Quota(10_000, gcra.Monthly), Cost: tt.used}); err != nil {
				t.Fatal(err)
			}
		}

		before := draft6.Peek(get(tt.path))
		res, d := allow(l, get(tt.path))
		h := res.Header
		if got := h.Get("RateLimit-Policy") + " and " + h.Get("RateLimit"); got != tt.want {
			t.Errorf("%s, %s:\ngot  %s\nwant %s", tt.path, tt.what, got, tt.want)
		}
		if err := d.Refund(t.Context()); err != nil {
			t.Fatal(err)
		}

		if after := draft6.Peek(get(tt.path)); leftOf(after) != leftOf(before) {
			t.Errorf("%s, %s, refunded: got %s; want %s", tt.path, tt.what, leftOf(after), leftOf(before))
		}

		res, _ = allow(draft6, get(tt.path))
		h = res.Header
		if got := h.Get("RateLimit-Policy") + ", " + h.Get("RateLimit-Remaining") + " of " + h.Get("RateLimit-Limit") + ", reset " + h.Get("RateLimit-Reset"); got != tt.draft6 {
			t.Errorf("%s, %s:\ngot  %s\nwant %s", tt.path, tt.what, got, tt.draft6)
		}
	}
}

// costOf returns a Cost of 1 for requests of a path, and of 0 for others.
func costOf(path string) func(*http.Request) int64 {
	return func(r *http.Request) int64 {
		if r.URL.Path == path {
			return 1
		}
		return 0
	}
}

// While the store fails, each server admits its share of a quota, and of a small one one
// request.
func TestQuotaWhileTheStoreFails(t *testing.T) {
	for _, tt := range []struct {
		quota int64
		cost  int
		want  int // requests
	}{{8, 1, 2}, {9, 1, 2}, {3, 1, 1}, {40, 5, 2}, {40, 40, 1}, {40, 41, 0}} {
		store, _ := newStore()
		store.fail = 1000
		l := limiter(t, middleware.Config{Store: store, Instances: 4, Logger: unread},
			middleware.Policy{Name: "m", Key: key("k"), Limit: gcra.Quota(tt.quota, gcra.Monthly), Cost: func(*http.Request) int64 { return int64(tt.cost) }})
		n := 0

		for range 20 {
			if d := l.Decide(get("/")); d.Allowed {
				n++
			}
		}

		if n != tt.want {
			t.Errorf("a quota of %d among 4 servers, cost %d: got %d requests; want %d", tt.quota, tt.cost, n, tt.want)
		}
	}
}

// strict is a store that does not keep every limit: no quotas, and no burst but the count.
type strict struct{ gcra.Store }

func (strict) CheckLimit(l gcra.Limit) error {
	if l.IsQuota() || l.Capacity() != l.Count {
		return errors.New("no strict window")
	}
	return nil
}

// A store that keeps no quotas, and a quota with a delay, are mistakes at New and Reload.
func TestQuotaMistakes(t *testing.T) {
	quota := middleware.Policy{Name: "m", Key: key("k"), Limit: gcra.Quota(40, gcra.Yearly)}
	delayed := quota
	delayed.MaxDelay = time.Second

	for _, tt := range []struct {
		store  gcra.Store
		policy middleware.Policy
		want   string
	}{
		{strict{gcra.NewMemory()}, quota, "no strict window"},
		{strict{gcra.NewMemory()}, middleware.Policy{Name: "m", Key: key("k"), Limit: gcra.PerMinute(5).WithBurst(2)}, "no strict window"},
		{gcra.NewMemory(), delayed, "MaxDelay is 1s; want 0"},
		{gcra.NewMemory(), middleware.Policy{Name: "m", Key: key("k"), Limit: gcra.Quota(40, gcra.Monthly.From(31))}, "first day is 31; want 1 to 28"},
	} {
		if _, err := middleware.New(middleware.Config{Store: tt.store}, tt.policy); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New: got %v; want an error with %q", err, tt.want)
		}

		l := limiter(t, middleware.Config{Store: tt.store}, middleware.Policy{Name: "m", Key: key("k"), Limit: gcra.PerMinute(5)})
		if err := l.Reload(tt.policy); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Reload: got %v; want an error with %q", err, tt.want)
		}
	}
}

// A quota of which nothing is used has no t, as there will not be more.
func TestFullQuotaHasNoTime(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersDraft11},
		middleware.Policy{Name: "rate", Key: key("k"), Limit: gcra.PerSecond(10), Cost: costOf("/paid")},
		middleware.Policy{Name: "monthly", Key: key("k"), Limit: gcra.Quota(2, gcra.Monthly), Cost: costOf("/paid")})
	for _, tt := range []struct{ path, want string }{
		{"/free", `"rate";r=10, "monthly";r=2`},
		{"/paid", `"rate";r=9;t=1, "monthly";r=1;t=2147483`},
	} {
		res, _ := allow(l, get(tt.path))
		if got := res.Header.Get("RateLimit"); got != tt.want {
			t.Errorf("%s: got %s; want %s", tt.path, got, tt.want)
		}
	}
}
