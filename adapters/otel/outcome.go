package ratelimitotel

import (
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
	policy  string       // the first one with this outcome; "" before the first
	result  *gcra.Result // that policy's, if it was decided by its limit
}

func (v *requestOutcome) add(o outcome, policy string, r *gcra.Result) {
	if v.policy == "" || o > v.outcome {
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
