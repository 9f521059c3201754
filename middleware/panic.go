package middleware

import (
	"fmt"
	"runtime/debug"
)

// safely calls f and returns its error, or its panic as an error.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return f()
}

// panicError is a panic of a policy's function or of a store.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprint("panic: ", e.value) }

// Unwrap returns the value of the panic if it is an error, and otherwise nil.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}
