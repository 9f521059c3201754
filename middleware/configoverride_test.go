package middleware_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Config.Override wins over the policy's, stays after a Reload, and ends.
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
