package middleware_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var five = gcra.PerMinute(5)

func TestDecision(t *testing.T) {
	minute, hour := gcra.PerMinute(1), gcra.PerHour(1)
	three := func(*http.Request) int64 { return 3 }

	for _, test := range []struct {
		name     string
		policies []middleware.Policy
		requests int
		allowed  bool
		status   int
		retry    time.Duration
		delay    time.Duration
	}{
		// The policy that denies longest says the wait.
		{"longest", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute}, {Name: "h", Key: key("k"), Limit: hour}},
			2, false, 429, time.Hour, 0},
		// No wait helps a cost above the burst, whatever the other policies say.
		{"never", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, Cost: three}, {Name: "h", Key: key("k"), Limit: five}},
			1, false, 429, 0, 0},
		// A shadow never denies, and its wait does not count.
		{"shadow", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, Shadow: true}, {Name: "h", Key: key("k"), Limit: five}},
			2, true, 200, 0, 0},
		{"shadow never", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, Shadow: true, Cost: three}, {Name: "h", Key: key("k"), Limit: hour}},
			2, false, 429, time.Hour, 0},
		// The delay is the longest that a policy asks for.
		{"delay", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, MaxDelay: time.Hour}, {Name: "h", Key: key("k"), Limit: hour, MaxDelay: 2 * time.Hour}},
			2, true, 200, 0, time.Hour},
		{"shadow's delay", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, MaxDelay: time.Hour, Shadow: true}, {Name: "h", Key: key("k"), Limit: five}},
			2, true, 200, 0, 0},
		// The empty key is one bucket, not an exemption.
		{"anonymous", []middleware.Policy{{Name: "only", Key: key(""), Limit: minute}}, 2, false, 429, time.Minute, 0},
		// Nothing applies.
		{"skip", []middleware.Policy{{Name: "only", Key: key("k"), Limit: minute, Skip: func(*http.Request) bool { return true }}}, 9, true, 200, 0, 0},
		{"no limit", []middleware.Policy{{Name: "only", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { return gcra.Unlimited() }}}, 9, true, 200, 0, 0},
		{"other route", []middleware.Policy{{Name: "only", Key: key("k"), Limit: minute, Routes: []string{"POST /login"}}}, 9, true, 200, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, _ := newStore()
			l := limiter(t, middleware.Config{Store: store, Logger: unread}, test.policies...)
			var d *middleware.Decision
			for range test.requests {
				d = l.Decide(get("/"))
			}

			if d.Allowed != test.allowed || d.Status() != test.status || d.RetryAfter != test.retry || d.Delay != test.delay || d.Err != nil {
				t.Errorf("got %t, %d, retry %v, delay %v, error %v; want %t, %d, %v, %v, none",
					d.Allowed, d.Status(), d.RetryAfter, d.Delay, d.Err, test.allowed, test.status, test.retry, test.delay)
			}
		})
	}
}

func TestResults(t *testing.T) {
	store, _ := newStore()
	var observed []*middleware.Decision
	l := limiter(t, middleware.Config{Store: store, Observe: func(_ *http.Request, d *middleware.Decision) { observed = append(observed, d) }},
		middleware.Policy{Name: "a", Key: key("x"), Limit: five},
		middleware.Policy{Name: "b", Key: key("y"), Limit: gcra.PerHour(7), Shadow: true},
		middleware.Policy{Name: "c", Key: key("z"), LimitFor: func(*http.Request) gcra.Limit { return gcra.PerDay(9) }},
		middleware.Policy{Name: "d", Key: key("z"), Limit: gcra.PerDay(11)},
	)

	d := l.Decide(get("/"))
	want := []middleware.PolicyResult{
		{Policy: "a", Subject: "x", Limit: five, Result: gcra.Result{Allowed: true, Taken: 1, Remaining: 4, ResetAfter: 12 * time.Second}},
		{Policy: "b", Subject: "y", Shadow: true, Limit: gcra.PerHour(7), Result: gcra.Result{Allowed: true, Taken: 1, Remaining: 6, ResetAfter: 514285714300}},
		{Policy: "c", Subject: "z", Limit: gcra.PerDay(9), Result: gcra.Result{Allowed: true, Taken: 1, Remaining: 8, ResetAfter: 9600 * time.Second}},
		{Policy: "d", Subject: "z", Limit: gcra.PerDay(11), Result: gcra.Result{Allowed: true, Taken: 1, Remaining: 10, ResetAfter: 7854545454500}},
	}

	if len(d.Results) != len(want) {
		t.Fatalf("got %d results; want %d", len(d.Results), len(want))
	}

	for i := range want {
		if d.Results[i] != want[i] {
			t.Errorf("result %d: got %+v; want %+v", i, d.Results[i], want[i])
		}
	}

	if len(observed) != 1 || observed[0].Allowed != d.Allowed || len(observed[0].Results) != len(want) {
		t.Errorf("observed %+v; want the decision, once", observed)
	}
}
