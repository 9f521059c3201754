package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A denial whose wait ends after the deadline is returned at once.
func TestRetryBeyondDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		denied := connect.NewError(connect.CodeResourceExhausted, nil)
		denied.AddDetail(detail)
		call := retry(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) { return nil, denied })

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := call(ctx, nil); err != denied || time.Since(start) != 0 {
			t.Errorf("got %v after %v; want the denial at once", err, time.Since(start))
		}
	})
}
