// Policies is a server with its limits in a file and the inspector page.
//
//	go run ./examples/policies
//
// Change a number in policies.yaml and save: the new limit takes effect within a
// second. The page at the printed URL shows what the limits do.
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

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("policies", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	addr := flags.String("addr", "127.0.0.1:8080", "listen on `host:port`; port 0 takes a free one")
	path := flags.String("policies", "examples/policies/policies.yaml", "`file` with the limits")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(out, "Policies is a server with its limits in a file and the inspector page. Flags:")
		flags.SetOutput(out)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return fmt.Errorf("%w; the flags are -addr and -policies, see -h", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; the flags are -addr and -policies, see -h", flags.Arg(0))
	}

	limiter, err := load(*path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; run this in the root of the repository, or name a file with -policies", err)
	}
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return fmt.Errorf("-addr: %w; want a free port of this machine, such as 127.0.0.1:8081", err)
	}
	page, token, err := newInspector(listener.Addr(), limiter)
	if err != nil {
		return err
	}

	// The page is mounted outside the limiter, or a denied client could not open it.
	mux := http.NewServeMux()
	mux.Handle(inspectorPath, page)
	mux.Handle("/", ratelimit.From(limiter)(api()))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		_ = server.Close() // Serve returns
	}()

	fmt.Fprintf(out, greeting, listener.Addr(), *path, inspectorPath, token, os.Getpid())
	go follow(ctx, stop, out, *path, limiter)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const greeting = `Policies listens on http://%[1]s
Limits: %[2]s. Change one, save, and send requests again.
Inspector: http://%[1]s%[3]s?token=%[4]s

  for i in $(seq 11); do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/hello; done
  curl -i -H 'X-API-Key: demo-alice' http://%[1]s/me
  curl -i -H 'X-API-Key: demo-bob' http://%[1]s/report

alice has plan free and bob plan pro. Ctrl-C ends it; kill -HUP %[5]d reads the file at once.
`

func api() *http.ServeMux {
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /hello", "GET /me", "GET /report", "POST /login", "GET /healthz"} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, pattern) })
	}
	return mux
}

// users are the owners of API keys. A real server stores hashes of the keys.
var users = map[string]struct{ name, plan string }{
	"demo-alice": {"alice", "free"},
	"demo-bob":   {"bob", "pro"},
}

// funcs are the names that a policy file can use.
var funcs = policyfile.Funcs{
	Keys: map[string]keyfunc.Func{
		"client": keyfunc.RemoteAddr,
		"user": keyfunc.APIKey("X-API-Key", func(_ context.Context, key string) (string, bool) {
			user, ok := users[key]
			return user.name, ok
		}),
		"route": keyfunc.Route,
	},
	Costs: map[string]func(*http.Request) int64{"work": func(r *http.Request) int64 {
		if strings.HasSuffix(r.Pattern, " /report") {
			return 3
		}
		return 1
	}},
	Plan: func(r *http.Request) string { return users[r.Header.Get("X-API-Key")].plan },
}
