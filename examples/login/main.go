// Login slows down the guessing of passwords, and locks nobody out by it.
//
//	go run ./examples/login
//	curl -i 127.0.0.1:8080/login -d account=alice -d password=wonderland
//
// Each attempt is charged before the password is checked, so guesses in parallel count
// too. Only wrong passwords stay charged: by account and address, more loosely by account,
// and more loosely still by address. Each one beyond the fifth doubles the wait, up to an
// hour, and in the long run there are 20 a day. docs/login.md has the reasons, and
// main_test.go the attacks.
//
// signin.go is what to copy. users.go checks passwords, and only pretends to have users.
// With REDIS_URL the limits are shared by all servers on that Redis.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/keyfunc"
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

	client := keyfunc.RemoteAddr // behind a proxy: keyfunc.TrustedProxies
	server := http.Server{Addr: "127.0.0.1:8080", Handler: newHandler(store, client, newUsers().check), ReadTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newHandler(store gcra.Store, client keyfunc.Func, check checker) http.Handler {
	// RateLimit fields would tell a guesser how many wrong passwords an account has had.
	limit := ratelimit.New(ratelimit.Config{Store: store, Headers: ratelimit.HeadersNone}, policies(client)...)
	mux := http.NewServeMux()
	mux.Handle("POST /login", http.MaxBytesHandler(limit(signIn(check)), 4<<10)) // a key reads the form
	return mux
}
