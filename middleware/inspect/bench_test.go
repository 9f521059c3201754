package inspect

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// BenchmarkObserve observes a decision by two policies.
func BenchmarkObserve(b *testing.B) {
	subjects := make([]string, 1<<16)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("ip:%d.%d.2.7", i>>8, i&255)
	}

	for _, one := range []struct {
		name     string
		allowed  bool
		subjects int
	}{{"allowed", true, 1}, {"denied", false, 1}, {"denied, 65536 subjects", false, len(subjects)}} {
		b.Run(one.name, func(b *testing.B) {
			limiter := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()},
				middleware.Policy{Name: "a", Key: anyKey, Limit: gcra.PerMinute(10)}))
			i, err := New(Config{Authorize: func(*http.Request) bool { return true }}, limiter)
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequest("GET", "/", nil)
			limit := gcra.PerMinute(10)
			b.ReportAllocs()

			b.RunParallel(func(pb *testing.PB) {
				results := []middleware.PolicyResult{{Policy: "a", Limit: limit}, {Policy: "b", Limit: limit}}
				for n := 0; pb.Next(); n++ {
					results[0].Subject = subjects[n%one.subjects]
					results[0].Allowed, results[1].Allowed = one.allowed, true
					i.record.observe(r, &middleware.Decision{Allowed: one.allowed, Results: results})
				}
			})
		})
	}
}

// BenchmarkPage renders ten policies, each with the largest chart.
func BenchmarkPage(b *testing.B) {
	policies := make([]middleware.Policy, 10)
	for i := range policies {
		policies[i] = middleware.Policy{Name: fmt.Sprint("policy", i), Key: anyKey, Limit: gcra.PerMinute(5)}
	}
	limiter := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...))
	now := time.Now()
	i, err := newAt(func() time.Time { return now }, Config{Authorize: func(*http.Request) bool { return true }}, []*middleware.Limiter{limiter})
	if err != nil {
		b.Fatal(err)
	}

	r := httptest.NewRequest("GET", "/", nil)
	for range steps {
		for range 9 {
			limiter.Decide(r)
		}
		now = now.Add(step)
	}

	b.ReportAllocs()
	for b.Loop() {
		i.ServeHTTP(httptest.NewRecorder(), r)
	}
}

func anyKey(*http.Request) (string, error) { return "ip:192.0.2.7", nil }
