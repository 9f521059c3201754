package main

import (
	"fmt"
	"log"
	"net/http"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10)},
	)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", limit(mux)))
}
