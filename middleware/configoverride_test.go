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

// Config.Override wins over that of the policy, stays after a Reload, and ends.
func TestConfigOverride(t *testing.T) {
	shared := map[string]middleware.Override{
		"p k":     {Limit: gcra.PerHour(7)},
		"p ended": {Limit: gcra.PerHour(7), Until: time.Now().Add(-time.Second)},
	}

	find := func(policy, subject string) (middleware.Override, bool) {
		o, ok := shared[policy+" "+subject]
		return o, ok
	}

	own := overrides{"k": gcra.PerHour(5), "ended": gcra.PerHour(5), "own": gcra.PerHour(5)}.find
	l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Override: find},
		middleware.Policy{Name: "p", Key: byHeader, Limit: gcra.PerHour(3), Override: own})

	for range 2 {
		for subject, limit := range map[string]int64{"k": 7, "ended": 5, "own": 5, "other": 3} {
			r := get("/")
			r.Header.Set("X-Client", subject)
			if d := l.Decide(r); d.Results[0].Limit.Count != limit {
				t.Errorf("%s: got %v; want %d/hour", subject, d.Results[0].Limit, limit)
			}

			if o, _ := l.Policies()[0].OverrideOf(subject); o.Limit.Count != limit && limit != 3 {
				t.Errorf("%s: got %v; want %d/hour", subject, o.Limit, limit)
			}
		}
		if err := l.Reload(l.Policies()...); err != nil {
			t.Fatal(err)
		}
	}
}

// The program chooses the status for banned clients, and both say how long.
func TestBanStatus(t *testing.T) {
	for status, want := range map[int]string{0: "429 Quota Exceeded", http.StatusTooManyRequests: "429 Quota Exceeded", http.StatusForbidden: "403 Forbidden"} {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory(), BanStatus: status},
			middleware.Policy{Name: "p", Key: key("k"), Limit: five, Override: ban(time.Now().Add(time.Hour))})
		res, d := allow(l, get("/"))
		if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), want[4:]) || !strings.HasPrefix(res.Status, want[:3]) || d.Status() != res.StatusCode || res.Header.Get("Retry-After") != "3600" {
			t.Errorf("%d: got %s, %s, Retry-After %q; want %s and an hour", status, res.Status, body, res.Header.Get("Retry-After"), want)
		}
	}
	policy := middleware.Policy{Name: "p", Key: key("k"), Limit: five}
	if _, err := middleware.New(middleware.Config{Store: gcra.NewMemory(), BanStatus: 200}, policy); err == nil || !strings.Contains(err.Error(), "BanStatus is ") {
		t.Errorf("BanStatus 200: got %v", err)
	}
}
