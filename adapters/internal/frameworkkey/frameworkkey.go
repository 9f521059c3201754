// Package frameworkkey makes keys of a framework's own context, for the KeyFrom of
// adapters.
package frameworkkey

import (
	"errors"
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Maker makes the keys of one framework, whose context is a C.
type Maker[C any] struct {
	Missing string // the error for a request that carries no C
}

// From returns a Policy.Key that reads the framework's context. Its keys get the
// prefix "own:"; an empty one stays empty and is reported.
func (m *Maker[C]) From(key func(C) (string, error)) func(*http.Request) (string, error) {
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
