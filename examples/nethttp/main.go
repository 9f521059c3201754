// Nethttp limits an API of net/http: users by the subject of their token, all
// others by address, and logins more strictly.
//
//	go run ./examples/nethttp
//
// With REDIS_URL the limits are shared by all servers on that Redis.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
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
)

func main() {
	var store gcra.Store = gcra.NewMemory()
	where := "in this process; REDIS_URL shares them between servers"
	if url := os.Getenv("REDIS_URL"); url != "" {
		redis, err := redisstore.Open(url)
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
	subject := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"})
	user := keyfunc.First(subject, client)

	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })

	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "burst", Key: user, Limit: gcra.PerSecond(10)},
		ratelimit.Policy{Name: "daily", Key: user, Limit: gcra.PerDay(10_000)},
		ratelimit.Policy{Name: "login", Key: client, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
	)
	return limit(mux)
}
