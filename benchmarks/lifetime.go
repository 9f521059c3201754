package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// lifetime is the testing.TB that internal/test/redistest needs, outside of tests.
type lifetime struct {
	testing.TB // nil: redistest calls only the methods below

	mu       sync.Mutex
	cleanups []func()
	errs     []error
}

// failure is what Fatal panics with.
type failure struct{ error }

// withServers calls f with a testing.TB for internal/test/redistest, and then ends all
// servers and processes that f has started.
func withServers(f func(testing.TB) error) (err error) {
	l := &lifetime{}
	defer func() {
		p := recover()
		for _, cleanup := range slices.Backward(l.cleanups) {
			cleanup()
		}
		switch p := p.(type) {
		case nil:
			err = errors.Join(append(l.errs, err)...)
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	return f(l)
}

func (l *lifetime) Helper() {}

func (l *lifetime) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

func (l *lifetime) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *lifetime) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (l *lifetime) Fatal(args ...any) { l.Fatalf("%s", fmt.Sprint(args...)) }
