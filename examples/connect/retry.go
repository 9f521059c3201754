package main

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// retry is an interceptor of clients. It repeats calls that were denied, at most 4
// times, and waits before each as long as the server says. If that is beyond the
// deadline, it returns the denial at once. Without a deadline it waits for any time.
func retry(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		for attempt := 1; ; attempt++ {
			response, err := next(ctx, request)
			wait := retryAfter(err)
			if wait == 0 || attempt == 5 {
				return response, err
			}
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
				return response, err
			}

			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, err
			}
		}
	}
}

// retryAfter returns how long the server asks to wait, or 0 if the call succeeded or
// must not be repeated.
func retryAfter(err error) time.Duration {
	denied := new(connect.Error)
	if !errors.As(err, &denied) {
		return 0
	}
	for _, detail := range denied.Details() {
		if message, err := detail.Value(); err == nil {
			if info, ok := message.(*errdetails.RetryInfo); ok {
				return info.GetRetryDelay().AsDuration()
			}
		}
	}
	return 0
}
