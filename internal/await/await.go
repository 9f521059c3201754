// Package await waits for a time or a call, but not beyond the end of a context.
package await

import (
	"context"
	"time"
)

// Sleep returns after d, or with the context's error if that ends first. It returns nil at once if d is not positive.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Call returns what f returns, or the cause of the context's end if that comes first. Then f goes on
// by itself: a client may ignore a context.
func Call(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
