package ratelimit

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// call is what the limiters of one call share. They write into one set of fields, as
// in HTTP, and the outermost sends them.
type call struct {
	fields   http.Header
	pushback string // grpc-retry-pushback-ms of a denial
	once     sync.Once
	inHeader bool // fields are in the header metadata; guarded by once
}

// setHeader puts the fields into the header metadata, before that is sent.
func (c *call) setHeader(ctx context.Context) {
	c.once.Do(func() { c.inHeader = grpc.SetHeader(ctx, c.metadata()) == nil })
}

// finish puts the fields into the header metadata of a call that succeeds. On one that
// fails, or whose header metadata is sent, they are trailer metadata: a client retries
// only a call without header metadata (gRFC A6), also one that the handler denied.
func (c *call) finish(ctx context.Context, err error) {
	if err == nil {
		c.setHeader(ctx)
	}
	// Waits for a setHeader that is running and prevents later ones, so inHeader stands.
	c.once.Do(func() {})
	if c.inHeader {
		return
	}
	md := c.metadata()
	if err != nil && c.pushback != "" {
		md.Set("grpc-retry-pushback-ms", c.pushback)
	}
	_ = grpc.SetTrailer(ctx, md) // it fails outside a server, and after the end of the call
}

func (c *call) metadata() metadata.MD {
	md := make(metadata.MD, len(c.fields)+1)
	for name, values := range c.fields {
		md[strings.ToLower(name)] = values
	}
	return md
}

// deny returns the error of a call that was not allowed.
func (c *call) deny(d *Decision) error {
	if d.Delay > 0 { // the call ended while it was held back
		return status.FromContextError(d.Err).Err()
	}

	code, text, violations := adapter.Denial(d)
	var details []protoadapt.MessageV1
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

	c.pushback = pushback(d.RetryAfter)
	denial := status.New(codes.Code(code), text)
	// A denial without details is still a denial.
	if detailed, err := denial.WithDetails(details...); err == nil {
		denial = detailed
	}
	return denial.Err()
}

// pushback is the wait in milliseconds as a retry policy reads it (gRFC A6): a signed
// integer of 32 bits, negative if the call is not to be retried.
func pushback(wait time.Duration) string {
	if wait <= 0 {
		return "-1"
	}
	return strconv.FormatInt(wait.Milliseconds(), 10) // fits: Decision.RetryAfter is at most 2,147,483 s
}

// stream carries the Decision in its context, and sends the fields with the header
// metadata.
type stream struct {
	grpc.ServerStream
	ctx  context.Context // a ServerStream has one
	call *call
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendHeader(md metadata.MD) error {
	s.call.setHeader(s.ctx)
	return s.ServerStream.SendHeader(md)
}

func (s *stream) SendMsg(m any) error {
	s.call.setHeader(s.ctx)
	return s.ServerStream.SendMsg(m)
}
