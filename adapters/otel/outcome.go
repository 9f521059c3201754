package ratelimitotel

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// outcome is the outcome of a decision, for a policy or a request. In the order of the
// package comment the highest one counts.
type outcome uint8

const (
	allowed outcome = iota
	shadowDenied
	delayed
	degraded
	denied

	outcomes // their number
)

var outcomeNames = [outcomes]string{"allowed", "shadow_denied", "delayed", "degraded", "denied"}

// The attributes of metrics and spans.
const (
	policyKey    = attribute.Key("ratelimit.policy")
	outcomeKey   = attribute.Key("ratelimit.outcome")
	remainingKey = attribute.Key("ratelimit.remaining")
)

func (o outcome) attribute() attribute.KeyValue { return outcomeKey.String(outcomeNames[o]) }

// outcomeOf returns the outcome of a policy that has a result in the decision. notDecided
// are the decision's degraded policies.
func outcomeOf(p *middleware.PolicyResult, d *middleware.Decision, notDecided []string) outcome {
	switch {
	case !p.Allowed && !p.Shadow:
		return denied
	case slices.Contains(notDecided, p.Policy):
		return degraded
	case !p.Allowed:
		return shadowDenied
	case d.Delay > 0 && p.Delay > 0 && !p.Shadow: // a request waits neither for a shadow policy nor after a denial
		return delayed
	default:
		return allowed
	}
}

// requestOutcome is the outcome of a request, from its policies' outcomes.
type requestOutcome struct {
	outcome outcome
	policy  string       // the one that the outcome comes from; "" before the first
	result  *gcra.Result // that policy's, if it was decided by its limit
}

func (v *requestOutcome) add(o outcome, policy string, r *gcra.Result) {
	if v.policy == "" || o > v.outcome || o == v.outcome && closer(r, v.result) {
		*v = requestOutcome{o, policy, r}
	}
}

func (v *requestOutcome) setAttributes(span trace.Span) {
	attributes := []attribute.KeyValue{v.outcome.attribute(), policyKey.String(v.policy)}
	if v.result != nil {
		attributes = append(attributes, remainingKey.Int64(v.result.Remaining))
	}
	span.SetAttributes(attributes...)
}

// closer reports whether a policy with result a is closer to its limit than one with b: it
// has a longer wait, or less remaining. A nil result is the least close.
func closer(a, b *gcra.Result) bool {
	switch {
	case a == nil || b == nil:
		return b == nil && a != nil
	case a.Never != b.Never:
		return a.Never
	}
	return cmp.Or(
		cmp.Compare(a.RetryAfter, b.RetryAfter),
		-cmp.Compare(a.Remaining, b.Remaining),
		cmp.Compare(a.ResetAfter, b.ResetAfter),
	) > 0
}
