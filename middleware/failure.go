package middleware

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// FailureMode is what happens when a policy cannot be decided as configured: the
// store fails, or a function of the policy does.
type FailureMode uint8

const (
	// FailLocal goes on limiting with the state of this server alone, which grants
	// its share of each limit: see [Config.Instances]. In place of a key that is
	// unknown, the request counts as anonymous; in place of a cost, it takes the whole
	// burst. Without a limit it is FailClosed.
	FailLocal FailureMode = iota

	// FailOpen lets the request pass this policy uncounted.
	FailOpen

	// FailClosed denies the request with 503 Service Unavailable.
	FailClosed
)

// String returns the word that a policy file has for the mode.
func (m FailureMode) String() string {
	switch m {
	case FailLocal:
		return "local"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	}
	return fmt.Sprintf("FailureMode(%d)", uint8(m))
}

// followOnFailure sets the source of the charge at index i by its policy's
// OnFailure. cause may be nil.
func followOnFailure(s *requestState, i int, cause error) {
	addError(s, cause)
	e, c := &s.entries[i], &s.charges[i]
	switch mode := s.policy(i).OnFailure; {
	case mode == FailLocal && c.Limit != (gcra.Limit{}):
		e.source = sourceLocal
	case mode == FailOpen || c.Shadow: // a shadow never denies
		e.source = sourceOpen
	default:
		e.source = sourceClosed
	}
}

// failsClosed reports whether a policy without a decision denies the request.
func failsClosed(s *requestState) bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.source == sourceClosed })
}

// addError adds err, if it is not nil, to the Decision's Err.
func addError(s *requestState, err error) {
	if err != nil {
		s.err = errors.Join(s.err, err)
	}
}

// storeError is the error of a store that did not decide.
type storeError struct{ cause error }

func (e *storeError) Error() string { return "ratelimit: store: " + e.cause.Error() }
func (e *storeError) Unwrap() error { return e.cause }
