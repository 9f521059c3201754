// Quickstart is an API server to try the limiter on.
//
//	go run ./examples/quickstart
//
// It has a page that sends requests, and prints curl lines to try. Copy from
// limits.go (the policies) and server.go (where the limiters are mounted).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	s, err := parseFlags(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}

	store, kept, err := openStore(s.redis)
	if err != nil {
		return fmt.Errorf("-redis: %w", err)
	}
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("-addr: %w; want a free port of this machine, such as 127.0.0.1:8081", err)
	}

	addr := listener.Addr().String()
	signaled, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	handler, err := newHandler(signaled, store, page{Kept: kept, Steps: stepsAt(addr)})
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	greet(out, addr, kept)

	select {
	case err := <-served:
		return err
	case <-signaled.Done():
	}
	forget() // a second signal ends the process at once
	fmt.Fprintln(out, "Finishing requests for up to 10 s.")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

// openStore opens the store and says where the limits are kept. A Redis that
// does not answer is no error: until it does, this server limits by itself.
func openStore(redisURL string) (store gcra.Store, kept string, err error) {
	if redisURL == "" {
		return gcra.NewMemory(), "in this process; -redis shares them between servers", nil
	}
	redis, err := redisstore.Open(redisURL, redisstore.Config{})
	if err != nil {
		return nil, "", err
	}
	if err := redis.Ping(context.Background()); err != nil {
		return redis, "in this process until Redis works: " + err.Error(), nil
	}
	return redis, "in Redis", nil
}
