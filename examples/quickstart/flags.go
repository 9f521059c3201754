package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/seed-e377111c/ratelimit/gcra"
)

var frameworks = map[string]func(gcra.Store) http.Handler{
	"nethttp": withNetHTTP,
	"gin":     withGin,
	"echo":    withEcho,
	"echov5":  withEchoV5,
}

type settings struct {
	addr, redis string
	framework   func(gcra.Store) http.Handler
}

// parseFlags reads the flags. On -h it prints them to out and returns
// [flag.ErrHelp].
func parseFlags(args []string, out io.Writer) (settings, error) {
	s := settings{framework: withNetHTTP, redis: os.Getenv("REDIS_URL")}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8080", "listen on `host:port`; port 0 takes a free one")
	flags.Func("framework", "`name` of the framework: nethttp (default), gin, echo (v4) or echov5", func(name string) error {
		var known bool
		if s.framework, known = frameworks[name]; !known {
			return errors.New("want nethttp, gin, echo or echov5")
		}
		return nil
	})

	flags.Func("redis", "keep the limits in the Redis at `url`, such as redis://localhost:6379/0, and share\n"+
		"them with all servers there (default $REDIS_URL, or else the memory of this process)", func(url string) error {
		s.redis = url
		return nil
	})

	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, usage)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return s, err
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		return s, fmt.Errorf("%w; the flags are -addr, -framework and -redis, see -h", err)
	}
	return s, nil
}

const usage = `Quickstart is an API server to try the limiter on.

  GET  /hello    10 a minute for each address
  POST /login    5 a minute for each address; user=alice gets a token
  GET  /me       needs the token; 5 a second and 100 a day for each user
  GET  /report   needs the token; the same limits, and costs 3
  GET  /healthz  not limited

Flags:
`
