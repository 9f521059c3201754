package ratelimitotel

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// decisions observes limiters.
//
// It counts in atomic integers, which are read at collection: adding to an SDK's counter
// takes many times as long, for each policy of each request. So outcomes that did not
// happen yet are reported as 0 too. The histogram is the SDK's, with its exemplars, which
// lead to the trace of a denied request.
type decisions struct {
	limiters []*middleware.Limiter
	counter  metric.Int64ObservableCounter
	nearEnd  metric.Int64ObservableCounter
	duration metric.Float64Histogram
	outcomes [outcomes][]metric.RecordOption // the attributes of duration

	policies sync.Map // of *counts, by name
}

// counts are numbers of a policy by outcome.
type counts struct {
	n       [outcomes]atomic.Int64
	quota   atomic.Bool // it has had a quota
	nearEnd atomic.Int64
}

// bounds go from a microsecond, in which most decisions in memory are over, to twice the default
// Timeout of a redisstore.Store.
var bounds = []float64{
	1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
	1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
}

func newDecisions(meter metric.Meter, limiters []*middleware.Limiter) (*decisions, error) {
	ds := &decisions{limiters: limiters}
	// Made once, as each request needs one of them.
	for o := range outcomes {
		ds.outcomes[o] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(o.attribute()))}
	}

	var errs [3]error
	ds.duration, errs[0] = meter.Float64Histogram("ratelimit.decision.duration",
		metric.WithUnit("s"),
		metric.WithDescription("Time of decisions, by the outcome of the request."),
		metric.WithExplicitBucketBoundaries(bounds...))

	// Observed and not added to: what has not happened yet is there, as 0.
	ds.counter, errs[1] = meter.Int64ObservableCounter("ratelimit.decisions",
		metric.WithUnit("{decision}"),
		metric.WithDescription("Outcomes of policies for requests."))

	ds.nearEnd, errs[2] = meter.Int64ObservableCounter("ratelimit.quota.near_end",
		metric.WithUnit("{request}"),
		metric.WithDescription("Requests that a quota allowed and that left a tenth of it or less."))
	return ds, errors.Join(errs[:]...)
}

// observe records a decision.
func (ds *decisions) observe(r *http.Request, d *middleware.Decision) {
	notDecided := d.Degraded()
	var request requestOutcome
	for i := range d.Results {
		p := &d.Results[i]
		o, c := outcomeOf(p, d, notDecided), ds.countsOf(p.Policy)
		c.n[o].Add(1)
		if p.Banned { // without a look at the bucket
			request.add(o, p.Policy, nil)
		} else {
			request.add(o, p.Policy, &p.Result)
		}

		// This server's share of a quota says nothing of the whole.
		if p.Limit.IsQuota() && !slices.Contains(notDecided, p.Policy) {
			c.quota.Store(true)
			if p.Allowed && p.Remaining <= p.Limit.Capacity()/10 {
				c.nearEnd.Add(1)
			}
		}
	}

	// A policy that failed open, or closed without the store, has no Result.
	for _, name := range notDecided {
		if !slices.ContainsFunc(d.Results, func(p middleware.PolicyResult) bool { return p.Policy == name }) {
			ds.countsOf(name).n[degraded].Add(1)
			request.add(degraded, name, nil)
		}
	}
	if request.policy == "" {
		return // no policy applies
	}

	ds.duration.Record(r.Context(), d.Took.Seconds(), ds.outcomes[request.outcome]...)
	if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
		request.setAttributes(span)
	}
}

// countsOf returns the counts of a policy, new ones if there are none.
func (ds *decisions) countsOf(name string) *counts {
	c, known := ds.policies.Load(name)
	if !known {
		c, _ = ds.policies.LoadOrStore(name, new(counts))
	}
	return c.(*counts)
}

// collect reports the counts of all policies, also of those that are gone.
func (ds *decisions) collect(to metric.Observer) {
	// A policy without requests has series too: Prometheus' rate misses the count that a series begins with.
	for _, l := range ds.limiters {
		for _, p := range l.Policies() {
			if c := ds.countsOf(p.Name); p.Limit.IsQuota() {
				c.quota.Store(true)
			}
		}
	}

	for name, c := range ds.policies.Range {
		policy, c := policyKey.String(name.(string)), c.(*counts)
		for o := range outcomes {
			to.ObserveInt64(ds.counter, c.n[o].Load(), metric.WithAttributes(policy, o.attribute()))
		}
		if c.quota.Load() {
			to.ObserveInt64(ds.nearEnd, c.nearEnd.Load(), metric.WithAttributes(policy))
		}
	}
}
