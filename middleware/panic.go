package middleware

import (
	"fmt"
	"runtime/debug"
)

// safely calls f and returns its error, or its panic as an error.
func safely(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case error:
			err = &panicError{fmt.Errorf("panic: %w", p), debug.Stack()}
		default:
			err = &panicError{fmt.Errorf("panic: %v", p), debug.Stack()}
		}
	}()
	return f()
}

// panicError is a panic of a policy's function or of a store.
type panicError struct {
	error
	stack []byte
}

func (e *panicError) Unwrap() error { return e.error }
