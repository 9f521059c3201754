package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
)

// safely calls f and returns its error, or its panic as an error.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	return f()
}

// recovered returns an error for v, the value of recover. Call it only in the
// deferred function itself: the stack begins at the panic.
func recovered(v any) error {
	err, ok := v.(error)
	if !ok {
		err = errors.New(fmt.Sprint(v))
	}
	return &panicError{err, callers()}
}

// panicError is a panic of a policy's function or of a store.
type panicError struct {
	value error
	stack stack
}

func (e *panicError) Error() string { return "panic: " + e.value.Error() }
func (e *panicError) Unwrap() error { return e.value }

// stack is where a panic happened. It becomes text only if it is logged.
type stack []uintptr

func callers() stack {
	pcs := make([]uintptr, 64)
	return pcs[:runtime.Callers(4, pcs)] // without Callers, callers, recovered and the deferred function
}

// LogValue returns the stack as a panic prints it.
func (s stack) LogValue() slog.Value {
	var b strings.Builder
	frames := runtime.CallersFrames(s)
	for more := len(s) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return slog.StringValue(b.String())
}
