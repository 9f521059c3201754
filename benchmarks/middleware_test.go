package main

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"testing"
)

// BenchmarkMiddleware is a call of ServeHTTP with a limiter in memory around a handler.
func BenchmarkMiddleware(b *testing.B) {
	each(b, frameworks, 1, func(_ *testing.B, h http.Handler) func() check { return serveCaller(h) })
}

// BenchmarkLoopback is a request to net/http over loopback, by 16 clients that keep their
// connections.
func BenchmarkLoopback(b *testing.B) {
	const clients = 16
	each(b, frameworks[:1], clients, func(b *testing.B, h http.Handler) func() check {
		caller, next := loopbackCaller(b, h), 0
		var kept []check
		for range clients {
			kept = append(kept, caller())
		}
		return func() check { next++; return kept[next%clients] }
	})
}

// each measures every handler of the frameworks, after the limiters have shown that they
// keep a limit.
func each(b *testing.B, frameworks []func(limit) (httpContestants, error), callers int, serve func(*testing.B, http.Handler) func() check) {
	list := subjects(manyKeys)
	for _, build := range frameworks {
		strict, err := build(tight)
		if err != nil {
			b.Fatal(err)
		}
		loose, err := build(roomy)
		if err != nil {
			b.Fatal(err)
		}

		var contestants []contestant
		for _, name := range slices.Sorted(maps.Keys(loose.handlers)) {
			contestants = append(contestants, contestant{name, func(_ deployment, l limit) (func() check, error) {
				if l == tight {
					return serve(b, strict.handlers[name]), nil
				}
				return serve(b, loose.handlers[name]), nil
			}})
		}

		for _, c := range inTurn(contestants) {
			caller := c.start(b, deployment{}, roomy)
			touch(b, caller, callers, list)
			b.Run("framework="+loose.framework+"/limiter="+c.name, func(b *testing.B) {
				measureInMemory(b, caller, callers, list)
			})
		}
	}
}

// Every handler with a limiter writes fields about it, or what is compared is not the same
// work.
func TestFields(t *testing.T) {
	for _, build := range frameworks {
		h, err := build(roomy)
		if err != nil {
			t.Fatal(err)
		}
		for name, handler := range h.handlers {
			w, r := newRecorder(), newRequest()
			r.Header.Set(clientField, "somebody")
			handler.ServeHTTP(w, r)
			found := slices.ContainsFunc(slices.Collect(maps.Keys(w.header)), regexp.MustCompile(`(?i)rate-?limit`).MatchString)
			if want := writesFields(name); found != want {
				t.Errorf("%s, %s: rate limit fields are there: %v; want %v; fields: %v", h.framework, name, found, want, w.header)
			}
		}
	}
}
