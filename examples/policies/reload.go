package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// load returns a limiter with the policies of a file.
func load(path string) (*middleware.Limiter, error) {
	policies, err := policyfile.Load(path, funcs)
	if err != nil {
		return nil, err
	}
	return middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)
}

// follow reloads the file when it changes and on SIGHUP, until the context ends,
// and prints the result. A closed terminal sends SIGHUP too; printing fails then,
// and follow calls stop.
func follow(ctx context.Context, stop func(), out io.Writer, path string, l *middleware.Limiter) {
	w := &policyfile.Watcher{Path: path, Funcs: funcs, Limiter: l, OnReload: func(err error) {
		result := fmt.Sprintf("Policies of %s: %s", path, summary(l.Policies()))
		if err != nil {
			result = fmt.Sprintf("Policies stay as they were:\n%v", err)
		}
		if _, err := fmt.Fprintln(out, result); err != nil {
			stop()
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

// summary returns the policies in a line: "hello 10/minute, login 5/minute".
func summary(policies []middleware.Policy) string {
	list := make([]string, len(policies))
	for i, p := range policies {
		list[i] = p.Name + " " + p.Limit.String()
		if p.LimitFor != nil {
			list[i] += " or by plan"
		}
		if p.Override != nil {
			list[i] += " with overrides"
		}
		if p.Shadow {
			list[i] += " (shadow)"
		}
	}
	return strings.Join(list, ", ")
}
