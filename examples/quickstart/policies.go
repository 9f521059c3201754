package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// funcs is what a file of policies may name. One limiter stands in front of
// everything then, so the token is looked at before authentication: one that
// does not verify is nobody, and authentication refuses it.
func (a *api) funcs() policyfile.Funcs {
	return policyfile.Funcs{
		Keys: map[string]keyfunc.Func{
			"client": keyfunc.RemoteAddr,
			"user": keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return a.key, nil },
				[]string{jwt.SigningMethodHS256.Alg()}, jwt.WithIssuer(issuer)),
			"route": keyfunc.Route,
		},
		Costs: map[string]func(*http.Request) int{"work": cost},
		Plan:  a.plan,
	}
}

// plan is pro for users whose name begins so, and free for all others who have a
// token. An application would look it up.
func (a *api) plan(r *http.Request) string {
	name, err := a.subject(r)
	switch {
	case err != nil:
		return ""
	case strings.HasPrefix(name, "pro-"):
		return "pro"
	}
	return "free"
}

// fromFile makes the limiters of a file: one, in front.
func fromFile(cfg middleware.Config, path string, v policyfile.Funcs) (limiters, error) {
	policies, err := policyfile.Load(path, v)
	if err != nil {
		return limiters{}, err
	}
	limiter, err := middleware.New(cfg, policies...)
	return limiters{address: limiter}, err
}

// follow keeps the limiter's policies those of the file, whenever that changes
// and on SIGHUP, until the context ends. It says so in a line each time.
func follow(ctx context.Context, out io.Writer, path string, v policyfile.Funcs, l *middleware.Limiter) {
	w := &policyfile.Watcher{Path: path, Funcs: v, Limiter: l, OnReload: func(err error) {
		if err == nil {
			fmt.Fprintf(out, "Policies of %s: %s\n", oneLine(path), summary(l.Policies()))
			return
		}
		fmt.Fprintln(out, "Policies stay as they were:")
		for _, mistake := range each(err) {
			fmt.Fprintln(out, oneLine(mistake.Error()))
		}
	}}
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	defer signal.Stop(hangUps)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangUps:
				_ = w.Reload() // OnReload gets the error
			}
		}
	}()
	w.Run(ctx)
}

// terminal is where the program writes. One that is closed sends SIGHUP, which
// reads the file and does not end the program; what is written then fails.
type terminal struct {
	io.Writer
	closed func()
}

func (t terminal) Write(b []byte) (int, error) {
	n, err := t.Writer.Write(b)
	if errors.Is(err, syscall.EIO) {
		t.closed()
	}
	return n, err
}

// summary is the policies in a line: "hello 10/minute, login 5/minute".
func summary(policies []middleware.Policy) string {
	list := make([]string, len(policies))
	for i, p := range policies {
		list[i] = p.Name + " " + p.Limit.String()
		if p.LimitFor != nil {
			list[i] += " or by plan"
		}
		if p.Shadow {
			list[i] += " (shadow)"
		}
	}
	return strings.Join(list, ", ")
}

// each is the errors that were joined in err.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
