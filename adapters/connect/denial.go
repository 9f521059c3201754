package ratelimit

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// denial returns the error of a call that was not allowed.
func denial(d *Decision) error {
	if d.Delay > 0 { // the call ended while it was held back
		code := connect.CodeCanceled
		if errors.Is(d.Err, context.DeadlineExceeded) {
			code = connect.CodeDeadlineExceeded
		}
		return connect.NewError(code, d.Err)
	}

	code, text, violations := adapter.Denial(d)
	var details []proto.Message
	if d.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	if len(violations) > 0 {
		var quota errdetails.QuotaFailure
		for _, v := range violations {
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{Subject: v.Policy, Description: v.Why})
		}
		details = append(details, &quota)
	}

	denied := connect.NewError(connect.Code(code), errors.New(text))
	// A denial without details is still a denial.
	for _, message := range details {
		if detail, err := connect.NewErrorDetail(message); err == nil {
			denied.AddDetail(detail)
		}
	}
	return denied
}
