package main

import (
	"maps"
	"regexp"
	"slices"
	"testing"
)

func TestHTTPContestants(t *testing.T) {
	for _, build := range frameworks {
		if err := assertHTTP(build); err != nil {
			t.Error(err)
		}
		h, err := build(roomy)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range h.contestants() {
			if err := touch(c, subjects(200)); err != nil {
				t.Errorf("%s: %v", h.framework, err)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, build := range frameworks {
		h, err := build(roomy)
		if err != nil {
			t.Fatal(err)
		}
		for name, handler := range h.handlers {
			c, err := loopback(name, handler)
			if err != nil {
				t.Fatal(err)
			}
			w := newRecorder()
			r := newRequest()
			r.Header.Set(clientField, "somebody")
			handler.ServeHTTP(w, r)
			c.close()
			found := slices.ContainsFunc(slices.Collect(maps.Keys(w.header)), func(field string) bool {
				return regexp.MustCompile(`(?i)rate-?limit`).MatchString(field)
			})
			if want := tells(name) || isOurs(name) || isLeast(name) || name == fieldsOnly; found != want {
				t.Errorf("%s, %s: rate limit fields are there: %v; want %v; fields: %v", h.framework, name, found, want, w.header)
			}
		}
	}
}

func TestLoopback(t *testing.T) {
	h, err := netHTTPContestants(tight)
	if err != nil {
		t.Fatal(err)
	}
	c, err := loopback(ours, h.handlers[ours])
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := asserts(c, "over the wire"); err != nil {
		t.Error(err)
	}
}
