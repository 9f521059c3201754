// Quickstart is an API server to try the limiter on, with net/http, gin or
// echo (v4 and v5).
//
//	go run ./examples/quickstart
//
// It prints curl lines to try. Copy from limits.go (the policies) and from
// nethttp.go, gin.go, echo.go or echov5.go (where the limiters are mounted).
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

	server := &http.Server{
		Handler:           s.framework(store),
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
	fmt.Fprintf(out, greeting, listener.Addr(), kept)

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

const greeting = `Quickstart listens on http://%[1]s
Limits are kept %[2]s.

10 a minute for each address. The 11th request gets 429 and a Retry-After:

  for i in $(seq 11); do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/hello; done
  curl -i http://%[1]s/hello

5 a second and 100 a day for each user. A report costs 3, so the second at once gets 429:

  TOKEN=$(curl -s -d user=alice http://%[1]s/login)
  curl -i -H "Authorization: Bearer $TOKEN" http://%[1]s/me
  for i in 1 2; do curl -i -H "Authorization: Bearer $TOKEN" http://%[1]s/report; done

Ctrl-C ends it.
`
