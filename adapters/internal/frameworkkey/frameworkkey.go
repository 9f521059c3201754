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

// From returns a Policy.Key that reads the framework's context, a C. Its keys get the
// prefix "own:"; an empty one stays empty and is reported. Missing is the error for a
// request that carries no C.
func From[C any](key func(C) (string, error), missing string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		c, ok := middleware.Framework(r.Context()).(C)
		if !ok {
			return "", errors.New(missing)
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
