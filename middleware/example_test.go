package middleware_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// still is a store whose clock stands still, so that the examples print the same each time.
func still() *gcra.Memory {
	now := time.Date(2026, time.November, 10, 12, 0, 0, 0, time.UTC)
	return gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
}

// from returns a request from a client.
func from(address, method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = address + ":1234"
	return r
}

// The policies of a limiter are charged together. A request that one of them denies costs the others nothing.
func Example() {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: still()},
		middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		middleware.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"POST /login"}},
	))

	for _, path := range []string{"/login", "/login", "/login", "/search"} {
		w := httptest.NewRecorder()
		if _, ok := limiter.Allow(w, from("192.0.2.7", "POST", path)); ok {
			w.WriteHeader(http.StatusOK)
		}

		fmt.Printf("%s %d, remaining %s, Retry-After %q\n", path, w.Code, w.Header().Get("RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// /login 200, remaining 1, Retry-After ""
	// /login 200, remaining 0, Retry-After ""
	// /login 429, remaining 0, Retry-After "30"
	// /search 200, remaining 97, Retry-After ""
}

// A page that shows customers their use charges nothing.
func ExampleLimiter_Peek() {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: still()},
		middleware.Policy{Name: "month", Key: keyfunc.RemoteAddr, Limit: gcra.Quota(1000, gcra.Monthly)}))
	limiter.Decide(from("192.0.2.7", "GET", "/search"))

	for _, p := range limiter.Peek(from("192.0.2.7", "GET", "/usage")).Results {
		fmt.Printf("%s: %d of %d used, the period ends in %v\n", p.Policy, p.Limit.Capacity()-p.Remaining, p.Limit.Capacity(), p.ResetAfter)
	}
	// Output:
	// month: 1 of 1000 used, the period ends in 492h0m0s
}

// A request is charged an estimate, and then what it has cost: here more, so that the client is in debt.
func ExampleDecision_Settle() {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: still()}, middleware.Policy{
		Name: "tokens", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1000),
		Cost:    func(*http.Request) int64 { return 200 }, // the estimate
		MaxDebt: 5000,
	}))

	r := from("192.0.2.7", "POST", "/chat")
	d := limiter.Decide(r)
	fmt.Println("left", d.Results[0].Remaining)
	if err := d.Settle(r.Context(), 1300, "tokens"); err != nil {
		fmt.Println(err)
	}

	d = limiter.Decide(r)
	fmt.Println("allowed", d.Allowed, "retry after", d.RetryAfter)
	// Output:
	// left 800
	// allowed false retry after 30s
}

// One customer has a contract of its own, and one client is banned for an hour.
func ExamplePolicy_override() {
	exceptions := map[string]middleware.Override{
		"ip:192.0.2.7":    {Name: "contract", Limit: gcra.PerMinute(5000)},
		"ip:198.51.100.9": {Name: "scraper", Banned: true, Until: time.Now().Add(time.Hour)},
	}

	limiter := middleware.Must(middleware.New(middleware.Config{Store: still(), BanStatus: http.StatusForbidden}, middleware.Policy{
		Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100),
		Override: func(subject string) (middleware.Override, bool) {
			o, ok := exceptions[subject]
			return o, ok
		},
	}))

	for _, address := range []string{"192.0.2.1", "192.0.2.7", "198.51.100.9"} {
		d := limiter.Decide(from(address, "GET", "/"))
		fmt.Println(address, d.Status(), d.Results[0].Limit)
	}
	// Output:
	// 192.0.2.1 200 100/minute
	// 192.0.2.7 200 5000/minute
	// 198.51.100.9 403 100/minute
}

// Deny writes the response. The RateLimit fields, Retry-After and Cache-Control are set already.
func ExampleConfig_deny() {
	limiter := middleware.Must(middleware.New(middleware.Config{
		Store: still(),
		Deny: func(w http.ResponseWriter, _ *http.Request, d *middleware.Decision) {
			w.WriteHeader(d.Status()) // 429, or 503 if a policy with FailClosed could not be decided
			fmt.Fprintf(w, "slow down: try again in %v", d.RetryAfter)
		},
	}, middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1)}))

	limiter.Decide(from("192.0.2.7", "GET", "/"))
	w := httptest.NewRecorder()
	limiter.Allow(w, from("192.0.2.7", "GET", "/"))
	fmt.Println(w.Code, w.Body)
	// Output:
	// 429 slow down: try again in 1m0s
}

// A new limit is watched before it is enforced.
func ExamplePolicy_shadow() {
	limiter := middleware.Must(middleware.New(middleware.Config{
		Store: still(),
		Observe: func(_ *http.Request, d *middleware.Decision) {
			for _, p := range d.Results {
				if p.Shadow && !p.Allowed {
					fmt.Println("policy", p.Policy, "would have denied", p.Subject)
				}
			}
		},
	}, middleware.Policy{Name: "strict", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1), Shadow: true}))

	for range 2 {
		fmt.Println(limiter.Decide(from("192.0.2.7", "GET", "/")).Status())
	}
	// Output:
	// 200
	// policy strict would have denied ip:192.0.2.7
	// 200
}

// A key that the client chooses limits no client: each value has a full bucket. Use the functions of
// package keyfunc, which count by what is verified.
func ExamplePolicy_incorrect() {
	limiter := middleware.Must(middleware.New(middleware.Config{Store: still()}, middleware.Policy{
		Name:  "client",
		Key:   func(r *http.Request) (string, error) { return r.Header.Get("X-Forwarded-For"), nil }, // wrong
		Limit: gcra.PerMinute(1),
	}))

	for _, invented := range []string{"1.1.1.1", "1.1.1.2", "1.1.1.3"} {
		r := from("192.0.2.7", "GET", "/")
		r.Header.Set("X-Forwarded-For", invented)
		fmt.Println(limiter.Decide(r).Status())
	}
	// Output:
	// 200
	// 200
	// 200
}
