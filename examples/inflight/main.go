// Inflight lets each client run three exports at once, over all servers on one Redis.
//
//	go run ./examples/inflight
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func main() {
	running, err := inflight.Open("redis://localhost:6379/0", inflight.Config{}) // or inflight.NewMemory on one server
	if err != nil {
		log.Fatal(err)
	}
	user := keyfunc.RemoteAddr // or by identity: keyfunc.JWTSubject, keyfunc.APIKey

	mux := http.NewServeMux()
	mux.Handle("POST /export", running.Handler(inflight.Limit{Name: "exports", Key: user, Max: 3})(http.HandlerFunc(export)))
	server := http.Server{Addr: "127.0.0.1:8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		log.Print("listening on http://", server.Addr)
		log.Print(server.ListenAndServe())
		stop()
	}()

	<-ctx.Done()
	_ = server.Shutdown(context.Background())
	_ = running.Close(context.Background()) // its slots are free at once
}

func export(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(2 * time.Second) // the work
	fmt.Fprintln(w, "exported")
}
