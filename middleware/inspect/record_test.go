package inspect

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Observing allocates nothing, also for repeated denials.
func TestObserveAllocatesNothing(t *testing.T) {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "a", Key: anyKey, Limit: gcra.PerMinute(5)}))
	i, err := New(Config{Authorize: func(*http.Request) bool { return true }}, limiter)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	d := &middleware.Decision{Results: []middleware.PolicyResult{{Policy: "a", Subject: "ip:192.0.2.7", Limit: gcra.PerMinute(5)}}}
	i.record.observe(r, d)
	// One step may begin meanwhile.
	if got := testing.AllocsPerRun(1000, func() { i.record.observe(r, d) }); got >= 1 {
		t.Errorf("got %v allocations a decision; want 0", got)
	}
}
