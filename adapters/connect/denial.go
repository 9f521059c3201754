package ratelimit

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-e377111c/ratelimit/middleware"
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

	code, text := connect.CodeResourceExhausted, "The call was denied because a rate limit is used up."
	switch {
	case d.Status() == http.StatusServiceUnavailable:
		code, text = connect.CodeUnavailable, "The call was denied because the service cannot check its rate limits at the moment."
	case slices.ContainsFunc(d.Results, func(p middleware.PolicyResult) bool { return p.Banned && !p.Shadow }):
		text = "The call was denied because its client is banned."
	}

	denied := connect.NewError(code, errors.New(text))
	// A denial without details is still a denial.
	for _, message := range details(d) {
		if detail, err := connect.NewErrorDetail(message); err == nil {
			denied.AddDetail(detail)
		}
	}

	return denied
}

// details are the google.rpc messages of a denial.
func details(d *Decision) (list []proto.Message) {
	if d.RetryAfter > 0 {
		list = append(list, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	// Shadows deny nothing, so clients do not learn of them.
	var violations []*errdetails.QuotaFailure_Violation
	for i := range d.Results {
		if p := &d.Results[i]; !p.Allowed && !p.Shadow {
			why := "rate limit is used up"
			if p.Banned {
				why = "the client is banned"
			}
			violations = append(violations, &errdetails.QuotaFailure_Violation{Subject: p.Policy, Description: why})
		}
	}
	if len(violations) > 0 {
		list = append(list, &errdetails.QuotaFailure{Violations: violations})
	}
	return list
}
