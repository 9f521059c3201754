// Login slows down the guessing of passwords, and locks nobody out by it: see docs/login.md.
//
//	go run ./examples/login
//	curl -i 127.0.0.1:8080/login -H 'Content-Type: application/json' -d '{"username": "alice", "password": "wonderland"}'
package main

import (
	"log"
	"net/http"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

func main() {
	store := gcra.NewMemory()    // several servers: redisstore.Open
	client := keyfunc.RemoteAddr // behind a proxy: keyfunc.TrustedProxies
	guard, err := signin.New(middleware.Config{Store: store}, signin.JSON("username"), client)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/login", guard.Handler(newUsers().signIn))
	log.Print("listening on http://127.0.0.1:8080")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
