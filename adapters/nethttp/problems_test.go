package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// send sends a request from an address, with headers such as "X-API-Key", "a1", and
// prints what comes back.
func send(h http.Handler, address, target string, headers ...string) {
	r := httptest.NewRequest("GET", target, nil)
	r.RemoteAddr = address + ":1234"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(target, headers, w.Code)
}

// Customers buy a plan: a rate and a monthly quota. One has a contract of its own. A page
// shows customers their use.
func Example_plan() {
	now := time.Date(2026, time.November, 10, 12, 0, 0, 0, time.UTC) // stands still
	store := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})

	customers := map[string]string{"key-a": "acme", "key-b": "bolt", "key-c": "corp"} // by API key
	plans := map[string]string{"acme": "free", "bolt": "pro", "corp": "pro"}
	quotas := map[string]gcra.Limit{"free": gcra.Quota(2, gcra.Monthly), "pro": gcra.Quota(1000, gcra.Monthly)}
	contracts := map[string]middleware.Override{"key:corp": {Limit: gcra.Quota(50_000, gcra.Monthly)}}

	customer := func(r *http.Request) string { return customers[r.Header.Get("X-API-Key")] }
	key := keyfunc.APIKey("X-API-Key", func(_ context.Context, apiKey string) (string, bool) {
		name, ok := customers[apiKey]
		return name, ok
	})

	limiter := middleware.Must(middleware.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "rate", Key: keyfunc.First(key, keyfunc.RemoteAddr), Limit: gcra.PerSecond(10)},
		ratelimit.Policy{
			Name: "month", Key: key, SkipAnonymous: true,
			LimitFor: func(r *http.Request) gcra.Limit { return quotas[plans[customer(r)]] },
			Override: func(subject string) (middleware.Override, bool) {
				contract, ok := contracts[subject]
				return contract, ok
			},
		},
	))

	api := ratelimit.From(limiter)(http.HandlerFunc(hello))
	usage := func(apiKey string) {
		r := httptest.NewRequest("GET", "/usage", nil)
		r.Header.Set("X-API-Key", apiKey)
		for _, p := range limiter.Peek(r).Results {
			if p.Limit.IsQuota() {
				fmt.Println(customer(r), p.Limit, "used", p.Limit.Capacity()-p.Remaining, "ends", now.Add(p.ResetAfter).Format(time.DateOnly))
			}
		}
	}

	for range 3 {
		send(api, "192.0.2.1", "/", "X-API-Key", "key-a")
	}
	send(api, "192.0.2.1", "/", "X-API-Key", "key-b")
	send(api, "192.0.2.1", "/")
	usage("key-a")
	usage("key-b")
	usage("key-c")

	// Output:
	// / [X-API-Key key-a] 200
	// / [X-API-Key key-a] 200
	// / [X-API-Key key-a] 429
	// / [X-API-Key key-b] 200
	// / [] 200
	// acme 2/calendar month used 2 ends 2026-12-01
	// bolt 1000/calendar month used 1 ends 2026-12-01
	// corp 50000/calendar month used 0 ends 2026-12-01
}

// The database serves four requests a minute. No tenant gets more than half of them.
func Example_tenants() {
	tenant := keyfunc.APIKey("X-Tenant", func(_ context.Context, key string) (string, bool) { return key, true })
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "tenant", Key: tenant, Limit: gcra.PerMinute(2)},
		ratelimit.Policy{Name: "all", Key: keyfunc.Const("all"), Limit: gcra.PerMinute(4)},
	)
	api := limit(http.HandlerFunc(hello))
	for range 4 {
		send(api, "192.0.2.1", "/", "X-Tenant", "loud") // its denials take nothing from the others
	}

	for range 2 {
		send(api, "192.0.2.2", "/", "X-Tenant", "quiet")
	}

	// Output:
	// / [X-Tenant loud] 200
	// / [X-Tenant loud] 200
	// / [X-Tenant loud] 429
	// / [X-Tenant loud] 429
	// / [X-Tenant quiet] 200
	// / [X-Tenant quiet] 200
}

// An export costs as much as twenty other requests, and exports start one after the other: a
// second one waits for its turn instead of being denied. One that fails costs nothing.
func Example_expensiveRoute() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", hello)
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, r *http.Request) {
		if err := export(r); err != nil {
			if r.Context().Err() == nil { // our fault, not a client's that has hung up
				_ = ratelimit.FromContext(r.Context()).Refund(r.Context(), "client")
			}
			http.Error(w, "sorry", http.StatusInternalServerError)
		}
	})

	cost := func(r *http.Request) int64 {
		if r.Pattern == "GET /export" {
			return 20
		}
		return 1
	}

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(60), Cost: cost},
		ratelimit.Policy{
			Name: "export", Key: keyfunc.Const("all"), Routes: []string{"GET /export"},
			Limit: gcra.PerSecond(50).WithBurst(1), MaxDelay: 10 * time.Second,
		},
	)

	api := limit(mux)
	for _, target := range []string{"/export", "/export?fails", "/export", "/export", "/hello"} {
		send(api, "192.0.2.1", target)
	}

	// Output:
	// /export [] 200
	// /export?fails [] 500
	// /export [] 200
	// /export [] 200
	// /hello [] 429
}

func export(r *http.Request) error {
	if r.URL.RawQuery == "fails" {
		return errors.New("the database is away")
	}
	return nil
}

// The CDN names the client in a header of its own, which counts only if the CDN sent it.
func Example_cdn() {
	client := keyfunc.AddrHeader("CF-Connecting-IP", "173.245.48.0/20") // and the other networks of the CDN
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: client, Limit: gcra.PerMinute(2)})
	api := limit(http.HandlerFunc(hello))

	send(api, "173.245.48.1", "/", "CF-Connecting-IP", "192.0.2.1")
	send(api, "173.245.48.2", "/", "CF-Connecting-IP", "192.0.2.1")
	send(api, "173.245.48.1", "/", "CF-Connecting-IP", "192.0.2.1")
	send(api, "173.245.48.1", "/", "CF-Connecting-IP", "192.0.2.2")
	for i := range 3 { // past the CDN, with invented clients
		send(api, "203.0.113.9", "/", "CF-Connecting-IP", fmt.Sprint("192.0.2.", 10+i))
	}

	// Output:
	// / [CF-Connecting-IP 192.0.2.1] 200
	// / [CF-Connecting-IP 192.0.2.1] 200
	// / [CF-Connecting-IP 192.0.2.1] 429
	// / [CF-Connecting-IP 192.0.2.2] 200
	// / [CF-Connecting-IP 192.0.2.10] 200
	// / [CF-Connecting-IP 192.0.2.11] 200
	// / [CF-Connecting-IP 192.0.2.12] 429
}
