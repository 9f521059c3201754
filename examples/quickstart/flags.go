package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

type settings struct {
	addr, redis string
}

// parseFlags reads the flags. On -h it prints them to out and returns
// [flag.ErrHelp].
func parseFlags(args []string, out io.Writer) (settings, error) {
	s := settings{redis: os.Getenv("REDIS_URL")}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8080", "listen on `host:port`; port 0 takes a free one")
	// A StringVar would print REDIS_URL, with its password, as the default.
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
		return s, fmt.Errorf("%w; the flags are -addr and -redis, see -h", err)
	}
	return s, nil
}

const usage = `Quickstart is an API server to try the limiter on.

  GET  /         a page that sends requests to /hello
  GET  /hello    10 an hour for each address
  POST /login    5 a minute for each address; user=alice gets a token
  GET  /me       needs the token; 5 a second and 100 a day for each user
  GET  /report   needs the token; the same limits, and takes 60 of the 100
  GET  /healthz  not limited
  GET  /debug/ratelimit  the inspector, on this machine only

Flags:
`
