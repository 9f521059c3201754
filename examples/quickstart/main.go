// Quickstart is an API server to try the limiter on, the same with net/http,
// gin and echo.
//
//	go run ./examples/quickstart
//
// It prints curl lines to try. What to copy from is in nethttp.go, gin.go and
// echo.go (how limits stand around routes and authentication) and in limits.go
// (who may do how much); the rest is an ordinary server.
package main

import (
	"context"
	"errors"
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
	"github.com/seed-e377111c/ratelimit/middleware"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err != nil {
		for _, err := range each(err) {
			fmt.Fprintln(os.Stderr, "quickstart:", oneLine(err.Error()))
		}
		os.Exit(1)
	}
}

// drainFor is how long requests may take to finish after SIGTERM.
const drainFor = 10 * time.Second

func run(args []string, out io.Writer) error {
	s, err := readSettings(args, os.Getenv)
	if errors.Is(err, errHelp) {
		_, err = io.WriteString(out, usage)
		return err
	}
	if err != nil {
		return err
	}
	store, kept, err := openStore(s)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.addr)
	if err != nil {
		return addrError(s.addr, err)
	}

	a := &api{key: s.key}
	cfg := middleware.Config{Store: store, Headers: headers[s.headers]}
	limits, err := newLimiters(cfg)
	if s.policies != "" {
		limits, err = fromFile(cfg, s.policies, a.funcs())
	}
	if err != nil {
		return err
	}
	handler := frameworks[s.framework](a, limits)
	if s.inspect {
		var page string
		if handler, page, err = withInspector(handler, limits, listener.Addr()); err != nil {
			return err
		}
		kept += "\nInspector: " + page
	}
	server := &http.Server{
		Handler:           oneSpelling(handler),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	signaled, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	greet(out, s, listener.Addr(), kept)
	running, end := context.WithCancel(signaled)
	defer end()
	if s.policies != "" {
		go follow(running, terminal{out, end}, s.policies, a.funcs(), limits.address)
	}

	select {
	case err := <-served:
		return err
	case <-running.Done():
	}
	forget() // a second signal ends the process at once
	fmt.Fprintf(out, "Draining: requests under way have %v to finish.\n", drainFor)
	ctx, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("requests were still under way after %v", drainFor)
	}
	return nil
}

// openStore opens the store that is asked for and says in a line where the
// limits are kept. A Redis that is away is no error: until it is there, this
// server limits by itself.
func openStore(s settings) (store gcra.Store, kept string, err error) {
	if s.redisURL == "" {
		return gcra.NewMemory(), "Limits are kept in this process (embedded store); -redis or REDIS_URL shares them between servers.", nil
	}
	redis, err := redisstore.Open(s.redisURL)
	if err != nil {
		return nil, "", redisError(s)
	}
	if err := redis.Ping(context.Background()); err != nil {
		return redis, "Limits are kept in this process until Redis works: " + oneLine(err.Error()) + ".", nil
	}
	return redis, fmt.Sprintf("Limits are kept in Redis at %s.", oneLine(withoutUser(s.redisURL))), nil
}
