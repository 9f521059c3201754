package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const usage = `Quickstart is an API server to try the limiter on. It prints curl lines to try.

  go run ./examples/quickstart [flags]

  -addr host:port    where to listen (default 127.0.0.1:8080, this machine only);
                     port 0 takes a free one
  -framework name    nethttp (default), gin or echo: all answer alike
  -redis url         where the limits are kept, so that servers share them:
                     redis://[user:password@]host:6379/0, rediss:// for TLS,
                     redis://host1:6379,host2:6379 for a cluster. Without it the
                     environment's REDIS_URL, without both this process itself,
                     as with -redis ""
  -headers form      what a response tells of the limits: draft6 (default), draft11,
                     both, x (X-RateLimit-*) or none
  -policies file     the limits, in YAML, in place of those below; a change holds
                     within a second, or at once on SIGHUP to the process whose
                     number is printed. See policies.yaml beside this program
  -inspect           a page on what the limits do, on /debug/ratelimit: the URL to
                     open, with a token in it, is printed
  -h                 this text

Environment

  REDIS_URL          as -redis, which goes before it
  JWT_SECRET         signs the tokens, at least 32 bytes; servers that are to take
                     each other's tokens need the same one. Without it that is the
                     demo key, which everybody knows: no loss here, as POST /login
                     gives a token to whoever asks, but nothing to copy

Routes and limits

  GET  /hello        10 a minute for an address
  POST /login        5 a minute for an address; {"user":"alice"} gets a token
  GET  /me           needs the token; 5 a second and 100 a day for a user
  GET  /report       needs the token; the same two limits, of which it takes 3 units
  GET  /healthz      never limited

`

// demoKey signs tokens where JWT_SECRET is not set. It is the same in every
// quickstart, so that two of them on one Redis take each other's tokens.
const demoKey = "demo key of the quickstart, known to everybody"

const minKey = 32 // bytes, as RFC 7518 (section 3.2) asks for HS256

var frameworks = map[string]func(*api, limiters) http.Handler{
	"nethttp": withNetHTTP,
	"gin":     withGin,
	"echo":    withEcho,
}

var headers = map[string]middleware.Headers{
	"draft6":  middleware.HeadersDraft6,
	"draft11": middleware.HeadersDraft11,
	"both":    middleware.HeadersDraft6 | middleware.HeadersDraft11,
	"x":       middleware.HeadersXRateLimit,
	"none":    middleware.HeadersNone,
}

type settings struct {
	addr, framework, headers string
	redisURL, redisFrom      string // and the flag or variable that gave it
	policies                 string // a file, "" without
	inspect                  bool
	key                      []byte // signs tokens
	demo                     bool   // it is the demo key
}

var errHelp = flag.ErrHelp

const flagNames = "-addr, -framework, -redis, -headers, -policies or -inspect"

// readSettings reads the flags and the environment. Its errors name the value
// and what would be right.
func readSettings(args []string, getenv func(string) string) (settings, error) {
	s := settings{redisURL: getenv("REDIS_URL"), redisFrom: "REDIS_URL", key: []byte(getenv("JWT_SECRET"))}
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8080", "")
	flags.StringVar(&s.framework, "framework", "nethttp", "")
	flags.Func("redis", "", func(url string) error {
		s.redisURL, s.redisFrom = url, "-redis"
		return nil
	})
	flags.StringVar(&s.headers, "headers", "draft6", "")
	flags.StringVar(&s.policies, "policies", "", "")
	flags.BoolVar(&s.inspect, "inspect", false, "")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return s, errHelp
	} else if err != nil {
		return s, fmt.Errorf("%w; want %s, see -h", err, flagNames)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is not a flag; want %s, see -h", flags.Arg(0), flagNames)
	}
	if _, ok := frameworks[s.framework]; !ok {
		return s, fmt.Errorf("-framework is %q; want nethttp, gin or echo", s.framework)
	}
	if _, ok := headers[s.headers]; !ok {
		return s, fmt.Errorf("-headers is %q; want draft6, draft11, both, x or none", s.headers)
	}
	if _, port, err := net.SplitHostPort(s.addr); err != nil || port == "" {
		return s, fmt.Errorf("-addr is %q; want host:port, such as 127.0.0.1:8080", s.addr)
	}
	switch {
	case len(s.key) == 0:
		s.key, s.demo = []byte(demoKey), true
	case len(s.key) < minKey:
		return s, fmt.Errorf("JWT_SECRET has %d bytes; want at least %d", len(s.key), minKey)
	}
	return s, nil
}

// addrError says why nobody can listen there, and what to do.
func addrError(addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("-addr is %q: the port is in use; want another, or port 0 for a free one", addr)
	}
	return fmt.Errorf("-addr is %q: %w; want host:port of this machine, such as 127.0.0.1:8080", addr, err)
}

// redisError says what is wrong with a URL without telling its password: the
// cause is that of the URL without one, as the text of an error may quote any
// part of what it is about.
func redisError(s settings) error {
	shown := withoutUser(s.redisURL)
	_, cause := redisstore.Open(shown)
	if cause == nil {
		cause = errors.New("user or password is not written for a URL: @ is %40, / is %2F, ? is %3F, # is %23, % is %25")
	}
	return fmt.Errorf("%s is %q; want a URL such as redis://localhost:6379/0 (%w)", s.redisFrom, shown, cause)
}

// withoutUser is the URL, good or bad, without user and password.
func withoutUser(url string) string {
	at := strings.LastIndexByte(url, '@')
	if at < 0 {
		return url
	}
	scheme, _, ok := strings.Cut(url[:at], "://")
	if !ok {
		return url[at+1:]
	}
	return scheme + "://" + url[at+1:]
}

// oneLine escapes what would break a line.
func oneLine(s string) string {
	var b strings.Builder
	for _, c := range s {
		if strconv.IsPrint(c) {
			b.WriteRune(c)
		} else {
			quoted := strconv.QuoteRune(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
