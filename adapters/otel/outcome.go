package ratelimitotel

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// outcome is what a decision came to, for a policy or for a request. They are
// in the order of the package comment: of several, the highest goes.
type outcome uint8

const (
	allowed outcome = iota
	shadowRefused
	delayed
	degraded
	refused

	outcomes // how many there are
)

var outcomeNames = [outcomes]string{"allowed", "shadow_refused", "delayed", "degraded", "refused"}

// The attributes of metrics and spans.
const (
	policyKey    = attribute.Key("ratelimit.policy")
	outcomeKey   = attribute.Key("ratelimit.outcome")
	remainingKey = attribute.Key("ratelimit.remaining")
)

func (o outcome) attribute() attribute.KeyValue { return outcomeKey.String(outcomeNames[o]) }

// outcomeOf is the outcome of a policy that has a result in the decision; away
// are the names of those that were not decided as asked.
func outcomeOf(p *middleware.PolicyResult, d *middleware.Decision, away []string) outcome {
	switch {
	case !p.Allowed && !p.Shadow:
		return refused
	case slices.Contains(away, p.Policy):
		return degraded
	case !p.Allowed:
		return shadowRefused
	case d.Delay > 0 && p.Delay > 0 && !p.Shadow: // nobody waits for another policy's refusal, or for a shadow
		return delayed
	default:
		return allowed
	}
}

// verdict is what a request's policies come to together.
type verdict struct {
	outcome outcome
	policy  string       // that the outcome comes from; "" as long as there is none
	result  *gcra.Result // its result, if it was decided
}

func (v *verdict) add(o outcome, policy string, r *gcra.Result) {
	if v.policy == "" || o > v.outcome || o == v.outcome && closer(r, v.result) {
		*v = verdict{o, policy, r}
	}
}

// describe tells the span.
func (v *verdict) describe(span trace.Span) {
	attributes := []attribute.KeyValue{v.outcome.attribute(), policyKey.String(v.policy)}
	if v.result != nil {
		attributes = append(attributes, remainingKey.Int64(v.result.Remaining))
	}
	span.SetAttributes(attributes...)
}

// closer reports whether the policy with result a is closer to its limit than
// the one with b: it asks for a longer wait, or it has less left.
func closer(a, b *gcra.Result) bool {
	switch {
	case a == nil || b == nil:
		return b == nil && a != nil
	case a.Never != b.Never:
		return a.Never
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	default:
		return a.ResetAfter > b.ResetAfter
	}
}
