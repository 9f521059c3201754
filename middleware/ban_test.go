package middleware_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func ban(until time.Time) func(string) (middleware.Override, bool) {
	return func(string) (middleware.Override, bool) { return middleware.Override{Banned: true, Until: until}, true }
}

// No field names a wait that a timer of 32 bits takes for none: of a ban until the year 9999, as databases
// write "for ever", and of a quota, allowed and denied.
func TestLongWaits(t *testing.T) {
	const longest = 2_147_483 * time.Second
	for i, p := range []middleware.Policy{
		{Name: "p", Key: key("k"), Limit: five, Override: ban(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))},
		{Name: "p", Key: key("k"), Limit: gcra.Quota(2, gcra.Yearly)},
	} {
		store, _ := newStore()
		l := limiter(t, middleware.Config{Store: store, Headers: middleware.HeadersXRateLimit | middleware.HeadersDraft11}, p)
		for range 3 {
			res, d := allow(l, get("/"))
			if h := res.Header; h.Get("X-RateLimit-Reset") != "2147483" || !strings.HasSuffix(h.Get("RateLimit"), ";t=2147483") ||
				!d.Allowed && (h.Get("Retry-After") != "2147483" || d.RetryAfter != longest) {
				t.Errorf("policy %d: got %v, RetryAfter %v; want no wait above %v", i, h, d.RetryAfter, longest)
			}
		}
	}
}

// The body of a banned client says so, and until when; its other members are as in other denials.
func TestBanIsSaid(t *testing.T) {
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	longer := until.Add(time.Hour)
	never, millennia := time.Time{}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	const quota, forbidden = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,`, `{"type":"about:blank","title":"Forbidden","status":403,`

	for _, tt := range []struct {
		name   string
		status int
		ends   []time.Time // of the bans of policies a, b and so on
		want   string
	}{
		{"429", 0, []time.Time{until}, quota + `"detail":"The request was denied because its client is banned until ` + until.UTC().Format(time.RFC3339) + `.","violated-policies":["a"]}`},
		{"403", 403, []time.Time{until}, forbidden + `"detail":"The request was denied because its client is banned until ` + until.UTC().Format(time.RFC3339) + `.","violated-policies":["a"]}`},
		{"two bans", 403, []time.Time{longer, until}, forbidden + `"detail":"The request was denied because its client is banned until ` + longer.UTC().Format(time.RFC3339) + `.","violated-policies":["a","b"]}`},
		{"for good", 403, []time.Time{until, never}, forbidden + `"detail":"The request was denied because its client is banned.","violated-policies":["a","b"]}`},
		{"for millennia", 0, []time.Time{millennia}, quota + `"detail":"The request was denied because its client is banned.","violated-policies":["a"]}`},
	} {
		policies := []middleware.Policy{{Name: "other", Key: key("k"), Limit: five}, {Name: "shadow", Key: key("k"), Limit: five, Shadow: true, Override: ban(never)}}
		for i, end := range tt.ends {
			policies = append(policies, middleware.Policy{Name: string(rune('a' + i)), Key: key("k"), Limit: five, Override: ban(end)})
		}

		res, d := allow(limiter(t, middleware.Config{Store: gcra.NewMemory(), BanStatus: tt.status}, policies...), get("/"))
		if body, err := io.ReadAll(res.Body); err != nil || string(body) != tt.want+"\n" {
			t.Errorf("%s: got %s, %v; want %s", tt.name, body, err, tt.want)
		}
		for _, r := range d.Results {
			if !r.Banned {
				t.Errorf("%s: policy %s decided without a ban: %+v", tt.name, r.Policy, r)
			}
		}
	}
}

// The fields of a banned key have the window of its quota, as other keys' fields.
func TestBanOfAQuota(t *testing.T) {
	p := middleware.Policy{Name: "p", Key: key("k"), Limit: gcra.Quota(5, gcra.Yearly)}
	a, _ := allow(limiter(t, middleware.Config{Store: gcra.NewMemory()}, p), get("/"))
	p.Override = ban(time.Now().Add(time.Hour))
	b, _ := allow(limiter(t, middleware.Config{Store: gcra.NewMemory()}, p), get("/"))
	if x, y := a.Header.Get("RateLimit-Policy"), b.Header.Get("RateLimit-Policy"); x != y {
		t.Errorf("%s, banned %s", x, y)
	}
}

// RateLimit-Reset is Retry-After also where the longest ban is of a policy that has no limit to show.
func TestResetOfTwoBans(t *testing.T) {
	soon := time.Now().Add(time.Minute)
	for _, longest := range []time.Time{soon.Add(time.Hour), {}} {
		res, _ := allow(limiter(t, middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "shown", Key: key("k"), Limit: five, Override: ban(soon)},
			middleware.Policy{Name: "unlimited", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { return gcra.Unlimited() }, Override: ban(longest)}), get("/"))
		if h := res.Header; h.Get("RateLimit-Reset") != h.Get("Retry-After") || h.Get("RateLimit-Policy") == "" {
			t.Errorf("bans until %v and %v: %v; want RateLimit-Reset as Retry-After", soon, longest, h)
		}
	}
}

// What an Override says of a key counts also if its LimitFor fails: a ban is no way in.
func TestOverrideWithoutAPlan(t *testing.T) {
	for _, f := range []middleware.FailureMode{middleware.FailLocal, middleware.FailOpen, middleware.FailClosed} {
		for name, lf := range map[string]func(*http.Request) gcra.Limit{
			"missing": func(*http.Request) gcra.Limit { return gcra.Limit{} },
			"invalid": func(*http.Request) gcra.Limit { return gcra.PerHour(-1) },
			"panics":  func(*http.Request) gcra.Limit { panic("x") },
		} {
			for _, own := range []gcra.Limit{{}, gcra.PerMinute(5)} {
				p := middleware.Policy{Name: "p", Key: key("k"), Limit: own, LimitFor: lf, OnFailure: f, Override: ban(time.Time{})}
				if _, d := allow(limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: unread}, p), get("/")); d.Status() != 429 {
					t.Errorf("LimitFor %s, %v, Limit %v: a banned key got %d", name, f, own, d.Status())
				}

				p.Override = overrides{"k": gcra.PerHour(3)}.find
				if _, d := allow(limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: unread}, p), get("/")); len(d.Results) != 1 || d.Results[0].Limit != gcra.PerHour(3) {
					t.Errorf("LimitFor %s, %v, Limit %v: an override of 3/hour got %d, %v", name, f, own, d.Status(), d.Results)
				}
			}
		}
	}
}
