// Metrics is a rate limited API server with metrics for Prometheus, and a dashboard for
// Grafana.
//
//	go run ./examples/metrics
//
// It prints curl lines to try. The API and /metrics listen on two addresses, as metrics
// are not for the API's clients. Copy from metrics.go (OpenTelemetry, for Prometheus) and
// api.go (an instrumented limiter), and import deploy/grafana.json into Grafana.
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
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
)

const usage = `Metrics is a rate limited API server with metrics for Prometheus.

  go run ./examples/metrics [flags]

  -addr host:port     address of the API (default 127.0.0.1:8080, this machine
                      only); port 0 is any free port
  -metrics host:port  address of /metrics (default 127.0.0.1:9464)
  -redis url          keep limits in Redis: redis://[user:password@]host:6379/0,
                      rediss:// for TLS, redis://host1:6379,host2:6379 for a
                      cluster. The default is the environment's REDIS_URL. If
                      neither is set, or with -redis "", limits are kept in
                      this process
  -h                  this text

Routes and limits

  GET /hello          60 a minute for an address; 20 a minute in shadow
  GET /slow           as GET /hello, and one every 200 ms for an address; requests
                      are delayed by up to a second
  GET /report         as GET /hello, and 20 a calendar month for an address

With Redis, the command "ratelimit override" and "ratelimit ban" change limits while
the server runs.
`

const greeting = `The API listens on http://%[1]s, its metrics are on http://%[2]s/metrics
Limits are kept in %[3]s.

Send requests that are delayed, allowed and denied, and look at the counts:

  for i in $(seq 3); do curl -s -o /dev/null -w '%%{time_total}\n' http://%[1]s/slow & done; wait
  for i in $(seq 70); do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/hello; done
  curl -s http://%[2]s/metrics | grep ^ratelimit_decisions

Ctrl-C ends it.
`

func main() {
	ctx, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	forget()
	if err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := readSettings(args, os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(out, usage)
		return err
	}
	if err != nil {
		return err
	}
	metrics, shutdown, err := newMetrics()
	if err != nil {
		return err
	}
	defer shutdown()

	if s.redis == "" {
		api, err := newAPI(gcra.NewMemory(), nil)
		if err != nil {
			return err
		}
		return serve(ctx, s, api, metrics, "this process; -redis or REDIS_URL shares them between servers", out)
	}

	store, err := redisstore.Open(s.redis, redisstore.Config{})
	if err != nil {
		return fmt.Errorf("%s is not a URL such as redis://localhost:6379/0: %w", s.redisFrom, err)
	}
	defer store.Close()
	return serveShared(ctx, s, store, metrics, out)
}

// serveShared serves the API with limits, and overrides of operators, in Redis.
func serveShared(ctx context.Context, s settings, store *redisstore.Store, metrics http.Handler, out io.Writer) error {
	where := "the Redis of " + s.redisFrom
	if err := store.Ping(ctx); err != nil {
		where = "this process until Redis works: " + strings.ReplaceAll(err.Error(), "\n", " ")
	}

	overrides, err := fleet.New(ctx, fleet.Config{Store: store})
	if err != nil {
		return err
	}
	if err := ratelimitotel.InstrumentOverrides(otel.GetMeterProvider(), overrides); err != nil {
		return err
	}

	api, err := newAPI(store, overrides.Find)
	if err != nil {
		return err
	}
	return serve(ctx, s, api, metrics, where, out)
}

// serve serves the API and its metrics until the context ends. where says where limits are
// kept.
func serve(ctx context.Context, s settings, api, metrics http.Handler, where string, out io.Writer) error {
	ended := make(chan error, 2)
	start := func(flag, addr string, h http.Handler) (*http.Server, net.Addr, error) {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is %q: %w; want host:port of this machine, port 0 for a free one", flag, addr, err)
		}
		server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
		go func() { ended <- server.Serve(listener) }()
		return server, listener.Addr(), nil
	}
	front, apiAddr, err := start("-addr", s.addr, api)
	if err != nil {
		return err
	}
	defer front.Close()
	back, metricsAddr, err := start("-metrics", s.metrics, metrics)
	if err != nil {
		return err
	}
	defer back.Close()
	fmt.Fprintf(out, greeting, apiAddr, metricsAddr, where)

	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(front.Shutdown(draining), back.Shutdown(draining))
}

type settings struct {
	addr, metrics    string
	redis, redisFrom string // the URL, and the flag or variable that gave it
}

const wantFlags = "want -addr, -metrics or -redis, see -h"

// readSettings reads the flags and the environment. Errors name the value and what is
// wanted.
func readSettings(args []string, getenv func(string) string) (s settings, err error) {
	s.redis, s.redisFrom = getenv("REDIS_URL"), "REDIS_URL"
	flags := flag.NewFlagSet("metrics", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8080", "")
	flags.StringVar(&s.metrics, "metrics", "127.0.0.1:9464", "")
	flags.Func("redis", "", func(url string) error {
		s.redis, s.redisFrom = url, "-redis"
		return nil
	})
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return s, err
	} else if err != nil {
		return s, fmt.Errorf("%w; %s", err, wantFlags)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag; %s", flags.Arg(0), wantFlags)
	}
	return s, nil
}
