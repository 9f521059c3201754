package middleware_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// overrides is a map of limits as Policy.Override.
type overrides map[string]gcra.Limit

func (o overrides) find(subject string) (middleware.Override, bool) {
	limit, ok := o[subject]
	return middleware.Override{Limit: limit}, ok
}

// A key with an override has that limit in the decision, the fields and the denial, and
// one with Unlimited is not limited. Override wins over Limit and LimitFor.
func TestOverride(t *testing.T) {
	exceptions := overrides{"big": gcra.PerMinute(9).WithBurst(3), "small": gcra.PerHour(1), "free": gcra.Unlimited(), "": gcra.PerHour(2)}
	byPath := func(r *http.Request) gcra.Limit {
		return map[string]gcra.Limit{"/five": five, "/none": gcra.Unlimited(), "/bad": gcra.PerHour(-1)}[r.URL.Path]
	}

	for _, test := range []struct {
		name, client, path string
		limitFor           func(*http.Request) gcra.Limit
		want               string // the first response's RateLimit-Policy
		passes             int    // of 6 requests
	}{
		{"no exception", "alice", "/", nil, "5;w=60", 5},
		{"more", "big", "/", nil, "9;w=60", 3},
		{"less", "small", "/", nil, "1;w=3600", 1},
		{"unlimited", "free", "/", nil, "", 6},
		{"anonymous", "", "/", nil, "2;w=3600", 2},
		{"LimitFor, no exception", "alice", "/five", byPath, "5;w=60", 5},
		{"LimitFor, less", "small", "/five", byPath, "1;w=3600", 1},
		{"LimitFor, unlimited", "free", "/five", byPath, "", 6},
		{"LimitFor has none, no exception", "alice", "/none", byPath, "", 6},
		{"LimitFor has none, less", "small", "/none", byPath, "1;w=3600", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, _ := newStore()
			l := limiter(t, middleware.Config{Store: store},
				middleware.Policy{Name: "only", Key: byHeader, Limit: five, LimitFor: test.limitFor, Override: exceptions.find})
			r := get(test.path)
			r.Header.Set("X-Client", test.client)

			for i := range 6 {
				res, d := allow(l, r)
				if i == 0 && res.Header.Get("RateLimit-Policy") != test.want {
					t.Errorf("got RateLimit-Policy %q; want %q", res.Header.Get("RateLimit-Policy"), test.want)
				}

				if want := map[bool]int{true: 200, false: 429}[i < test.passes]; res.StatusCode != want || d.Err != nil {
					t.Errorf("request %d: got %d, %v; want %d", i+1, res.StatusCode, d.Err, want)
				}

				if d.Allowed == (res.Header.Get("Retry-After") != "") {
					t.Errorf("request %d: got Retry-After %q with status %d", i+1, res.Header.Get("Retry-After"), res.StatusCode)
				}
			}
		})
	}
}

// Overrides may be quotas beside a rate with MaxDelay, and rates beside a quota by plan.
func TestOverrideAndQuota(t *testing.T) {
	rate, quota := gcra.PerHour(1), gcra.Quota(1, gcra.Daily)
	byPlan := func(*http.Request) gcra.Limit { return quota }

	for _, test := range []struct {
		name   string
		policy middleware.Policy
		delay  time.Duration // of the second request; -1: denied
	}{
		{"a rate", middleware.Policy{Limit: rate}, time.Hour},
		{"a rate, overridden", middleware.Policy{Limit: rate, Override: overrides{"k": quota}.find}, -1},
		{"a plan", middleware.Policy{LimitFor: byPlan}, -1},
		{"a plan, overridden", middleware.Policy{LimitFor: byPlan, Override: overrides{"k": rate}.find}, time.Hour},
	} {
		p := test.policy
		p.Name, p.Key, p.MaxDelay = "only", key("k"), time.Hour
		store, _ := newStore()
		l := limiter(t, middleware.Config{Store: store}, p)
		l.Decide(get("/"))
		if d := l.Decide(get("/")); d.Err != nil || d.Allowed != (test.delay >= 0) || d.Delay != max(test.delay, 0) {
			t.Errorf("%s: got %t, delay %v, %v; want %v", test.name, d.Allowed, d.Delay, d.Err, test.delay)
		}
	}

	// Reset fills the bucket of the override, which a quota has to itself.
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: rate, Override: overrides{"k": quota}.find})
	l.Decide(get("/"))
	if err := l.Reset(t.Context(), "k", "only"); err != nil || left(t, store, "k", "only", quota) != 1 {
		t.Errorf("a reset: got %v, %d left; want 1", err, left(t, store, "k", "only", quota))
	}
}

// A banned key is denied until the ban ends, and is charged to no policy. A shadow denies
// nobody.
func TestBan(t *testing.T) {
	for _, headers := range []middleware.Headers{middleware.HeadersDraft6, middleware.HeadersDraft11} {
		synctest.Test(t, func(t *testing.T) {
			end := time.Now().Add(90*time.Second + time.Millisecond)
			bans := map[string]middleware.Override{"for ever": {Banned: true}, "a while": {Banned: true, Until: end}}
			find := func(subject string) (middleware.Override, bool) {
				o, ok := bans[subject]
				return o, ok
			}

			store := gcra.NewMemory()
			l := limiter(t, middleware.Config{Store: store, Headers: headers},
				middleware.Policy{Name: "other", Key: key("all"), Limit: five},
				middleware.Policy{Name: "client", Key: byHeader, LimitFor: func(*http.Request) gcra.Limit { return gcra.Unlimited() }, Override: find})

			shadow := limiter(t, middleware.Config{Store: gcra.NewMemory()},
				middleware.Policy{Name: "client", Key: byHeader, Limit: five, Shadow: true, Override: find})

			for client, retry := range map[string]string{"for ever": "", "a while": "91"} {
				r := get("/")
				r.Header.Set("X-Client", client)
				res, d := allow(l, r)
				if res.StatusCode != 429 || res.Header.Get("Retry-After") != retry || len(d.Degraded()) != 0 {
					t.Errorf("%s: got %d, Retry-After %q; want 429, %q", client, res.StatusCode, res.Header.Get("Retry-After"), retry)
				}

				for name := range res.Header {
					if strings.HasPrefix(name, "Ratelimit") {
						t.Errorf("%s: got %s %q; want no field, as there is no limit", client, name, res.Header.Get(name))
					}
				}

				if d := shadow.Decide(r); !d.Allowed || d.Results[0].Allowed {
					t.Errorf("%s, as a shadow: got %+v; want a request that passes", client, d)
				}
			}

			if n := left(t, store, "all", "other", five); n != 5 {
				t.Errorf("the other policy: got %d left; want 5", n)
			}

			time.Sleep(91 * time.Second)
			r := get("/")
			r.Header.Set("X-Client", "a while")
			if d := l.Decide(r); !d.Allowed {
				t.Errorf("after Retry-After: got %+v; want the request allowed", d)
			}
		})
	}
}

// A plan that is missing in a map never opens the door, unless the policy fails open.
func TestMissingPlan(t *testing.T) {
	none := func(*http.Request) gcra.Limit { return map[string]gcra.Limit{"free": five}["Free"] }
	missing := func(string) (middleware.Override, bool) { return middleware.Override{Name: "x"}, true }
	hour := gcra.PerHour(1)

	for _, test := range []struct {
		name   string
		policy middleware.Policy
		want   []int // statuses of two requests
	}{
		{"LimitFor", middleware.Policy{LimitFor: none}, []int{503, 503}},
		{"closed", middleware.Policy{LimitFor: none, OnFailure: middleware.FailClosed}, []int{503, 503}},
		{"open", middleware.Policy{LimitFor: none, OnFailure: middleware.FailOpen}, []int{200, 200}},
		{"shadow", middleware.Policy{LimitFor: none, Shadow: true}, []int{200, 200}},
		{"with Limit", middleware.Policy{LimitFor: none, Limit: hour}, []int{200, 429}},
		{"with Limit, open", middleware.Policy{LimitFor: none, Limit: hour, OnFailure: middleware.FailOpen}, []int{200, 429}},
		{"Override", middleware.Policy{Override: missing, Limit: hour}, []int{200, 429}},
		{"Override and LimitFor", middleware.Policy{Override: missing, LimitFor: none}, []int{503, 503}},
		{"a key that fails", middleware.Policy{LimitFor: none, Key: func(*http.Request) (string, error) { return "", errDown }}, []int{503, 503}},
		{"with a cost", middleware.Policy{LimitFor: none, Cost: func(*http.Request) int64 { return 0 }}, []int{503, 503}},
	} {
		log := new(diagtest.Log)
		store := gcra.NewMemory()
		p := test.policy
		p.Name = "plan"
		if p.Key == nil {
			p.Key = key("k")
		}

		l := limiter(t, middleware.Config{Store: store, Logger: log.Logger()}, p)
		for i, want := range test.want {
			if d := l.Decide(get("/")); d.Status() != want {
				t.Errorf("%s, request %d: got %d; want %d", test.name, i+1, d.Status(), want)
			}
		}

		if lines := log.Lines(); len(lines) != 1 || lines[0].Code() != diag.PolicyFailed || lines[0].Attrs["policy"] != "plan" {
			t.Errorf("%s: got %v; want one line", test.name, lines)
		}

		if test.want[1] == 429 && left(t, store, "k", "plan", hour) != 0 {
			t.Errorf("%s: the subject's own bucket was not charged", test.name)
		}
	}
}
