package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const allFields = "RateLimit-Limit RateLimit-Remaining RateLimit-Reset RateLimit-Policy RateLimit X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset Retry-After"

// fields are the fields that a limiter sets, "|" between them.
func fields(h http.Header) string {
	var all []string
	for name := range strings.FieldsSeq(allFields) {
		all = append(all, strings.Join(h.Values(name), "&"))
	}
	return strings.Join(all, "|")
}

// A response's fields in the order of allFields, "|" between them: draft 6, draft 11, X- and the wait.
func TestHeaders(t *testing.T) {
	policies := []middleware.Policy{
		{Name: "burst", Key: key("k"), Limit: gcra.PerSecond(2)},
		{Name: "daily", Key: key("k"), Limit: gcra.PerDay(10_000)},
		{Name: "trial", Key: key("k"), Limit: gcra.PerDay(1), Shadow: true},
	}

	for _, test := range []struct {
		headers       middleware.Headers
		first, denied string // after one request, and after the third in no time
	}{
		{0, "2|1|1|2;w=1|||||", "2|0|1|2;w=1|||||1"},
		{middleware.HeadersDraft11, `|||"burst";q=2;w=1, "daily";q=10000;w=86400|"burst";r=1;t=1, "daily";r=9999;t=9||||`,
			`|||"burst";q=2;w=1, "daily";q=10000;w=86400|"burst";r=0;t=1, "daily";r=9998||||1`},
		{middleware.HeadersXRateLimit, "|||||2|1|1|", "|||||2|0|1|1"},
		{middleware.HeadersDraft6 | middleware.HeadersDraft11 | middleware.HeadersXRateLimit,
			`2|1|1|"burst";q=2;w=1, "daily";q=10000;w=86400|"burst";r=1;t=1, "daily";r=9999;t=9|2|1|1|`,
			`2|0|1|"burst";q=2;w=1, "daily";q=10000;w=86400|"burst";r=0;t=1, "daily";r=9998|2|0|1|1`},
		{middleware.HeadersNone, "||||||||", "||||||||1"},
	} {
		store, _ := newStore()
		l := limiter(t, middleware.Config{Store: store, Logger: unread, Headers: test.headers}, policies...)
		for i, want := range []string{test.first, "", test.denied} {
			if res, _ := allow(l, get("/")); i != 1 && fields(res.Header) != want {
				t.Errorf("%v, request %d: got %s; want %s", test.headers, i+1, fields(res.Header), want)
			}
		}
	}
}

func TestHeadersOfOneLimit(t *testing.T) {
	cost := func(n int64) func(*http.Request) int64 { return func(*http.Request) int64 { return n } }
	for _, test := range []struct {
		name   string
		policy middleware.Policy
		wait   time.Duration // between two requests, of which the second is looked at
		want   string
	}{
		{"vector", middleware.Policy{Name: "all", Limit: five}, time.Hour, `5|4|12|"all";q=5;w=60|"all";r=4;t=12||||`},
		{"limit is the burst", middleware.Policy{Name: "all", Limit: gcra.PerMinute(100).WithBurst(20)}, 0, `20|18|2|"all";q=100;w=60|"all";r=18;t=1||||`},
		{"part of a second", middleware.Policy{Name: "all", Limit: gcra.Limit{Count: 10, Per: 100 * time.Millisecond}}, 0, `10|8|1|"all";q=100;w=1|"all";r=8;t=1||||`},
		{"seconds and a half", middleware.Policy{Name: "all", Limit: gcra.Limit{Count: 3, Per: 1500 * time.Millisecond}}, 0, `3|1|1|"all";q=4;w=2|"all";r=1;t=1||||`},
		{"by request", middleware.Policy{Name: "all", LimitFor: func(*http.Request) gcra.Limit { return gcra.PerHour(7) }}, 0,
			`7|5|1029|"all";q=7;w=3600|"all";r=5;t=515||||`},
		// t is the time until the next unit, not until all.
		{"partly back", middleware.Policy{Name: "all", Limit: five}, 7 * time.Second, `5|3|17|"all";q=5;w=60|"all";r=3;t=5||||`},
		{"full", middleware.Policy{Name: "all", Limit: five, Cost: cost(0)}, 0, `5|5|0|"all";q=5;w=60|"all";r=5||||`},
		// A quota that is full has no t, as there will not be more.
		{"a full quota", middleware.Policy{Name: "all", Limit: gcra.Quota(5, gcra.Daily), Cost: cost(0)}, 0, `5|5|86400|"all";q=5;w=86400|"all";r=5||||`},
		// No wait helps, so there is none.
		{"never", middleware.Policy{Name: "all", Limit: five, Cost: cost(6)}, 0, `|||"all";q=5;w=60|"all";r=5||||`},
		{"denied", middleware.Policy{Name: "all", Limit: five, Cost: cost(5)}, 30500 * time.Millisecond, `5|2|30|"all";q=5;w=60|"all";r=2;t=30||||30`},
		{"quotes", middleware.Policy{Name: `a"b\c, d`, Limit: five}, 0, `5|3|24|"a\"b\\c, d";q=5;w=60|"a\"b\\c, d";r=3;t=12||||`},
	} {
		store, clock := newStore()
		test.policy.Key = key("k")
		l := limiter(t, middleware.Config{Store: store, Logger: unread, Headers: middleware.HeadersDraft6 | middleware.HeadersDraft11}, test.policy)
		allow(l, get("/"))
		clock.Add(test.wait)
		if res, _ := allow(l, get("/")); fields(res.Header) != test.want {
			t.Errorf("%s: got %s; want %s", test.name, fields(res.Header), test.want)
		}
	}
}

func TestClosestPolicy(t *testing.T) {
	policy := func(name string, l gcra.Limit, cost int64) middleware.Policy {
		return middleware.Policy{Name: name, Key: key("k"), Limit: l, Cost: func(*http.Request) int64 { return cost }}
	}
	forever, hour := policy("a", gcra.PerMinute(4), 1), policy("b", gcra.PerDay(1), 1)
	forever.Override, hour.Override = ban(time.Time{}), ban(time.Now().Add(time.Hour))

	for _, test := range []struct {
		name     string
		policies []middleware.Policy
		want     string // RateLimit-Policy of draft 6, of the second response
	}{
		{"least left", []middleware.Policy{policy("a", gcra.PerMinute(9), 1), policy("b", gcra.PerMinute(8), 1)}, "8;w=60"},
		{"as much left, longer", []middleware.Policy{policy("a", gcra.PerMinute(9), 1), policy("b", gcra.PerHour(9), 1)}, "9;w=3600"},
		{"denying wins over least left", []middleware.Policy{policy("a", gcra.PerMinute(1), 1), policy("b", gcra.PerMinute(8), 9)}, "8;w=60"},
		{"longest wait", []middleware.Policy{policy("a", gcra.PerMinute(1), 1), policy("b", gcra.PerHour(1), 1), policy("c", gcra.PerMinute(2), 2)}, "1;w=3600"},
		{"never wins over any wait", []middleware.Policy{hour, forever}, "4;w=60"},
		{"in any order", []middleware.Policy{forever, hour}, "4;w=60"},
	} {
		store, _ := newStore()
		l := limiter(t, middleware.Config{Store: store, Logger: unread}, test.policies...)
		allow(l, get("/"))
		res, _ := allow(l, get("/"))
		if got := res.Header.Get("RateLimit-Policy"); got != test.want {
			t.Errorf("%s: got %q; want %q", test.name, got, test.want)
		}
	}
}

// FuzzHeaders checks that each field of draft 6 is a number, and that a client that obeys
// Retry-After passes.
func FuzzHeaders(f *testing.F) {
	f.Add("burst", int64(100), int64(time.Minute), int64(0), 1, int64(0))
	f.Add(`q"\`, int64(10), int64(100*time.Millisecond), int64(3), 2, int64(time.Second))
	f.Add("odd", int64(7), int64(1_000_000_007), int64(1), 1, int64(13))
	f.Add("huge", int64(1), int64(200*365*24)*int64(time.Hour), int64(1), 1, int64(1))

	f.Fuzz(func(t *testing.T, name string, count, per, burst int64, cost int, delay int64) {
		store, clock := newStore()
		l, err := middleware.New(middleware.Config{Store: store, Headers: middleware.HeadersDraft6 | middleware.HeadersDraft11},
			middleware.Policy{Name: name, Key: key("k"), Limit: gcra.Limit{Count: count, Per: time.Duration(per), Burst: burst},
				Cost: func(*http.Request) int64 { return int64(cost) }, MaxDelay: time.Duration(delay)},
			middleware.Policy{Name: "second", Key: key("k"), Limit: five})
		if err != nil {
			t.Skip()
		}

		for range 3 {
			d := l.Decide(get("/"))
			if d.Err != nil {
				t.Skip() // a negative cost
			}

			if d.Delay > 0 {
				return // Allow would wait
			}

			res, d2 := allow(l, get("/"))
			retry, _ := strconv.ParseInt(res.Header.Get("Retry-After"), 10, 64)

			for _, field := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
				if !d2.Allowed && retry == 0 {
					if res.Header.Get(field) != "" {
						t.Errorf("%s: %q on a denial that no wait helps; want none", field, res.Header.Get(field))
					}
					continue
				}

				if n, err := strconv.ParseInt(res.Header.Get(field), 10, 64); err != nil || n < 0 {
					t.Errorf("%s: %q; want a whole number", field, res.Header.Get(field))
				}
			}

			if d2.Allowed || retry == 0 {
				continue
			}

			clock.Add(time.Duration(retry) * time.Second)
			if d := l.Decide(get("/")); !d.Allowed {
				t.Fatalf("denied again after waiting the %d s of Retry-After: %+v", retry, d.Results)
			}
		}
	})
}

// onTop is a context key of other middleware.
type onTop struct{}

func TestStacked(t *testing.T) {
	store, _ := newStore()
	policy := func(name string, n int64) middleware.Policy {
		return middleware.Policy{Name: name, Key: key("k"), Limit: gcra.PerMinute(n)}
	}

	spent := middleware.Policy{Name: "spent", Key: key("k"), Limit: gcra.PerHour(1)}
	limiter(t, middleware.Config{Store: store}, spent).Decide(get("/"))
	unknown := middleware.Policy{Name: "unknown", Limit: five, OnFailure: middleware.FailClosed,
		Key: func(*http.Request) (string, error) { return "", errors.New("no key today") }}

	both := middleware.HeadersDraft6 | middleware.HeadersXRateLimit
	all := both | middleware.HeadersDraft11
	for _, test := range []struct {
		name         string
		headers      [2]middleware.Headers
		outer, inner middleware.Policy
		status       int
		want         string
	}{
		{"inner tighter", [2]middleware.Headers{both, both}, policy("o1", 9), policy("i1", 5), 200,
			"RateLimit-Limit: 5|RateLimit-Remaining: 4|RateLimit-Policy: 5;w=60|X-RateLimit-Limit: 5"},
		{"outer tighter", [2]middleware.Headers{both, both}, policy("o2", 5), policy("i2", 9), 200,
			"RateLimit-Limit: 5|RateLimit-Remaining: 4|RateLimit-Policy: 5;w=60|X-RateLimit-Limit: 5"},
		{"as tight, longer", [2]middleware.Headers{both, both}, policy("o3", 5), middleware.Policy{Name: "i3", Key: key("k"), Limit: gcra.PerHour(5)}, 200,
			"RateLimit-Limit: 5|RateLimit-Reset: 720|RateLimit-Policy: 5;w=3600"},
		{"inner denies", [2]middleware.Headers{both, both}, policy("o4", 5),
			middleware.Policy{Name: "i4", Key: key("k"), Limit: gcra.PerMinute(9), Cost: func(*http.Request) int64 { return 10 }}, 429,
			"RateLimit-Limit: |RateLimit-Remaining: |RateLimit-Reset: |RateLimit-Policy: 9;w=60|X-RateLimit-Limit: |X-RateLimit-Reset: |Retry-After: "},
		{"inner denies, lists", [2]middleware.Headers{middleware.HeadersDraft11, middleware.HeadersDraft11}, policy("o9", 5), spent, 429,
			`RateLimit-Policy: "spent";q=1;w=3600|RateLimit: "spent";r=0;t=3600|Retry-After: 3600`},
		{"inner denies without fields", [2]middleware.Headers{all, middleware.HeadersNone}, policy("o10", 5), spent, 429,
			"RateLimit-Limit: |RateLimit: |RateLimit-Policy: |X-RateLimit-Limit: |X-RateLimit-Reset: |Retry-After: 3600"},
		{"inner cannot decide", [2]middleware.Headers{both, both}, policy("o11", 5), unknown, 503,
			"RateLimit-Limit: |RateLimit-Policy: |X-RateLimit-Limit: |X-RateLimit-Reset: |Retry-After: 1"},
		{"lists grow", [2]middleware.Headers{middleware.HeadersDraft11, middleware.HeadersDraft11}, policy("o5", 5), policy("i5", 9), 200,
			`RateLimit-Policy: "o5";q=5;w=60, "i5";q=9;w=60|RateLimit: "o5";r=4;t=12, "i5";r=8;t=7|RateLimit-Limit: `},
		{"list inside triple", [2]middleware.Headers{middleware.HeadersDraft6, middleware.HeadersDraft11}, policy("o6", 5), policy("i6", 9), 200,
			`RateLimit-Policy: "i6";q=9;w=60|RateLimit: "i6";r=8;t=7|RateLimit-Limit: 5`},
		{"triple inside list", [2]middleware.Headers{middleware.HeadersDraft11, middleware.HeadersDraft6}, policy("o7", 9), policy("i7", 5), 200,
			`RateLimit-Policy: "o7";q=9;w=60|RateLimit: "o7";r=8;t=7|RateLimit-Limit: 5`},
		{"other fields", [2]middleware.Headers{middleware.HeadersXRateLimit, middleware.HeadersDraft6}, policy("o8", 5), policy("i8", 9), 200,
			"RateLimit-Limit: |RateLimit-Policy: |X-RateLimit-Limit: 5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			outer := limiter(t, middleware.Config{Store: store, Headers: test.headers[0]}, test.outer)
			inner := limiter(t, middleware.Config{Store: store, Logger: unread, Headers: test.headers[1]}, test.inner)
			w := httptest.NewRecorder()
			r, ok := outer.Allow(w, get("/"))
			if !ok {
				t.Fatal("outer limiter denied")
			}

			first := middleware.FromContext(r.Context())
			r, ok = inner.Allow(w, r.WithContext(context.WithValue(r.Context(), onTop{}, "on top")))
			if ok != (test.status == 200) {
				t.Fatalf("inner limiter: got %t; want status %d", ok, test.status)
			}

			if d := middleware.FromContext(r.Context()); d == first || len(d.Results) > 0 && d.Results[0].Policy != test.inner.Name {
				t.Errorf("FromContext: got the decision on %+v; want the inner one", d.Results)
			}

			for _, field := range strings.Split(test.want, "|") {
				name, want, _ := strings.Cut(field, ": ")
				if got := w.Header().Values(name); len(got) > 1 || strings.Join(got, "") != want {
					t.Errorf("%s: got %q; want %q", name, got, want)
				}
			}
		})
	}
}
