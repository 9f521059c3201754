// Package frameworkkey makes keys of a framework's own context, for the KeyFrom of
// adapters.
package frameworkkey

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Maker makes the keys of one framework, whose context is a C.
type Maker[C any] struct {
	Missing string // the error for a request that carries no C

	made atomic.Bool
}

// From returns a Policy.Key that reads the framework's context. Its keys get the
// prefix "own:"; an empty one stays empty and is reported.
func (m *Maker[C]) From(key func(C) (string, error)) func(*http.Request) (string, error) {
	m.made.Store(true)
	return func(r *http.Request) (string, error) {
		c, ok := middleware.Framework(r.Context()).(C)
		if !ok {
			return "", errors.New(m.Missing)
		}
		subject, err := key(c)
		if err != nil {
			return "", err
		}
		if subject == "" {
			notice.Report(r.Context(), diag.KeyBeforeAuth, "")
			return "", nil
		}
		return "own:" + subject, nil
	}
}

// Carry returns the request for the limiter: a copy that carries c, unless the limiter
// has Config.NoContext and no key reads c.
func (m *Maker[C]) Carry(l *middleware.Limiter, r *http.Request, c C) *http.Request {
	if l.NoContext() && !m.made.Load() {
		return r
	}
	return middleware.WithFramework(r, c)
}
