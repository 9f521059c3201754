package adapter

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	"github.com/seed-e377111c/ratelimit/internal/carry"
	"github.com/seed-e377111c/ratelimit/internal/denial"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// WithRoute returns a copy of the request for a limiter. Its Pattern is the route that will serve
// the request, in the syntax of a ServeMux, or "" if the route is not known. The first Allow or Admit of a
// limiter that gets the copy keeps its Decision there.
func WithRoute(r *http.Request, pattern string) *http.Request {
	return WithFramework(r, pattern, struct{}{})
}

// WithFramework is [WithRoute] with a framework's own context, for [Framework] and [KeyFrom].
func WithFramework[C any](r *http.Request, pattern string, c C) *http.Request {
	made := &carried[C]{framework: c} // with the copy of the request, in one allocation
	made.Context = r.Context()
	made.request = *r.WithContext(made)
	made.request.Pattern = pattern
	return &made.request
}

// Framework returns the innermost C that was given to [WithFramework], and whether there is one.
func Framework[C any](ctx context.Context) (c C, ok bool) {
	if made, ok := ctx.Value(frameworkKey[C]{}).(*carried[C]); ok {
		return made.framework, true
	}
	return c, false
}

// carried is a Carrier with a framework's context.
type carried[C any] struct {
	carry.Carrier
	framework C
	request   http.Request
}

// frameworkKey finds the innermost context of a type.
type frameworkKey[C any] struct{}

func (c *carried[C]) Value(key any) any {
	if key == (frameworkKey[C]{}) {
		return c
	}
	return c.Carrier.Value(key)
}

// KeyFrom returns a Policy.Key that reads a framework's context. The key gets the prefix "own:"; an empty
// key stays empty, which means anonymous. A request that carries no C is an error.
func KeyFrom[C any](key func(C) (string, error)) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		c, ok := Framework[C](r.Context())
		if !ok {
			return "", fmt.Errorf("ratelimit: KeyFrom: the request carries no %v; "+
				"use the limiter through the framework's adapter, or give Peek adapter.WithFramework[%[1]v](r, r.Pattern, c)", reflect.TypeFor[C]())
		}

		subject, err := key(c)
		switch {
		case err != nil:
			return "", err
		case subject == "":
			// The limiter says so if all of its first requests have no user.
			notice.Report(r.Context(), diag.AnonymousOnly, "")
			return "", nil
		}
		return "own:" + subject, nil
	}
}

// DenyFrom returns a Config.Deny that calls deny with a framework's context. If deny returns false, as
// nothing will write a status, or if the request carries no C, the limiter writes the status alone.
func DenyFrom[C any](deny func(C, *middleware.Decision) bool) func(http.ResponseWriter, *http.Request, *middleware.Decision) {
	return func(w http.ResponseWriter, r *http.Request, d *middleware.Decision) {
		if c, ok := Framework[C](r.Context()); ok && deny(c, d) {
			denial.Answered(w)
		}
	}
}
