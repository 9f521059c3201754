// Nethttp limits an API of net/http: users by the subject of their token, all
// others by address, and logins more strictly. GET /usage shows users what they
// have left.
//
//	go run ./examples/nethttp
//
// With REDIS_URL the limits are shared by all servers on that Redis.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func main() {
	var store gcra.Store = gcra.NewMemory()
	where := "in this process; REDIS_URL shares them between servers"
	if url := os.Getenv("REDIS_URL"); url != "" {
		redis, err := redisstore.Open(url, redisstore.Config{})
		if err != nil {
			log.Fatal(err)
		}
		store, where = redis, "in the Redis of REDIS_URL"
		if err := redis.Ping(context.Background()); err != nil {
			where = "in this process until Redis works: " + err.Error()
		}
	}
	log.Print("limits are kept ", where)

	server := http.Server{Addr: "127.0.0.1:8080", Handler: newHandler(store), ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newHandler(store gcra.Store) http.Handler {
	client := keyfunc.RemoteAddr                                   // behind a proxy: keyfunc.TrustedProxies
	secret := []byte(cmp.Or(os.Getenv("JWT_SECRET"), rand.Text())) // without one no token verifies
	user := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"})

	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })

	limiter := middleware.Must(middleware.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "burst", Key: keyfunc.First(user, client), Limit: gcra.PerSecond(10)},
		ratelimit.Policy{Name: "monthly", Key: user, SkipAnonymous: true, Limit: gcra.Quota(10_000, gcra.Monthly)},
		ratelimit.Policy{Name: "login", Key: client, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
	))
	// GET /usage is mounted outside the limiter: it is not charged, and a denied user
	// can open it. The limit on it protects the store.
	usageLimit := ratelimit.New(ratelimit.Config{Store: store, Headers: middleware.HeadersNone},
		ratelimit.Policy{Name: "usage", Key: client, Limit: gcra.PerSecond(2)},
	)
	site := http.NewServeMux()
	site.Handle("GET /usage", usageLimit(usage(limiter)))
	site.Handle("/", ratelimit.From(limiter)(mux))
	return site
}

// policyUsage is what a key has used of a policy.
type policyUsage struct {
	Policy   string    `json:"policy"`
	Limit    string    `json:"limit"`
	Used     int64     `json:"used"`
	Left     int64     `json:"left"`
	ResetsAt time.Time `json:"resets_at"` // when nothing is used
}

// usage lists what the sender of the request has used, and charges nothing.
func usage(limiter *middleware.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := limiter.Peek(r)
		if d.Err != nil { // the store fails: only this server's own count is known
			http.Error(w, "your usage is not known at the moment", http.StatusServiceUnavailable)
			return
		}

		list := []policyUsage{}
		for _, p := range d.Results {
			if p.Shadow {
				continue // clients do not see these
			}
			list = append(list, policyUsage{p.Policy, p.Limit.String(), p.Limit.Capacity() - p.Remaining, p.Remaining,
				time.Now().Add(p.ResetAfter).UTC().Round(time.Second)})
		}

		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // fails only if the client is gone
	})
}
