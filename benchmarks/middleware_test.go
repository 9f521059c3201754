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
	each(b, frameworks, func(b *testing.B, h http.Handler) {
		b.ReportAllocs()
		caller, list := serveCaller(h), subjects(manyKeys)
		touch(b, caller, 1, list)
		measure(b, caller, 1, list)
	})
}

// BenchmarkLoopback is a request to net/http over loopback, by 16 clients that keep their
// connections.
func BenchmarkLoopback(b *testing.B) {
	const clients = 16
	each(b, frameworks[:1], func(b *testing.B, h http.Handler) {
		var kept []check
		caller := loopbackCaller(b, h)
		for range clients {
			kept = append(kept, caller())
		}
		next := 0
		again := func() check { next++; return kept[next%clients] }
		touch(b, again, clients, subjects(clients)) // they connect
		measure(b, again, clients, subjects(manyKeys))
	})
}

// each measures every handler of the frameworks, after the limiters have shown that they
// keep a limit.
func each(b *testing.B, frameworks []func(limit) (httpContestants, error), f func(*testing.B, http.Handler)) {
	for _, build := range frameworks {
		strict, err := build(tight)
		if err != nil {
			b.Fatal(err)
		}
		for name, h := range strict.handlers {
			if isCommand(name) {
				continue
			}
			if err := keeps(serveCaller(h)(), "tight"); err != nil {
				b.Fatalf("%s, %s: %v", strict.framework, name, err)
			}
		}

		loose, err := build(roomy)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(loose.handlers)) {
			b.Run("framework="+loose.framework+"/limiter="+name, func(b *testing.B) { f(b, loose.handlers[name]) })
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
