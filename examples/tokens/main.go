// Tokens limits the tokens of a language model: a proxy that reserves what a request may
// use, and settles when the last chunk of the answer says what it has used.
//
//	go run ./examples/tokens
//	curl -N 127.0.0.1:8080/v1/chat/completions -d '{"max_tokens": 500, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
//
// Each client has 60 requests and 20,000 tokens a minute, and 1,000,000 tokens a month.
// A request reserves its max_tokens and an estimate of its prompt, in all policies
// together. Most answers are shorter: [ratelimit.Decision.Settle] gives the rest back, so
// a client gets the tokens that it pays for. An answer that was longer than the
// reservation is charged too: MaxDebt says how far the bucket may be overdrawn, and the
// next requests wait. Requests are counted by the policy without a Cost, which Settle leaves
// alone.
//
// A stream that ends without its last chunk keeps its reservation, or clients could hang
// up to use tokens for free. A model that fails costs no tokens.
//
// model.go is the model, which only pretends. With REDIS_URL the limits are shared by all
// proxies on that Redis.
package main

import (
	"context"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

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

	model, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}

	go func() {
		server := http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 5 * time.Second}
		log.Fatal(server.Serve(model))
	}()
	handler := newHandler(store, &url.URL{Scheme: "http", Host: model.Addr().String()})
	server := http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on http://", server.Addr)
	log.Fatal(server.ListenAndServe())
}

func newHandler(store gcra.Store, model *url.URL) http.Handler {
	client := keyfunc.RemoteAddr                                              // for customers: the owner of the API key
	cfg := ratelimit.Config{Store: store, Headers: middleware.HeadersDraft11} // clients see all policies
	limit := ratelimit.New(cfg,
		ratelimit.Policy{Name: "requests", Key: client, Limit: gcra.PerMinute(60)},
		ratelimit.Policy{Name: "tokens", Key: client, Limit: gcra.PerMinute(20_000), Cost: reserved, MaxDebt: 20_000},
		ratelimit.Policy{Name: "month", Key: client, Limit: gcra.Quota(1_000_000, gcra.Monthly), Cost: reserved, MaxDebt: 20_000},
	)
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", withReservation(limit(newProxy(model))))
	return mux
}
