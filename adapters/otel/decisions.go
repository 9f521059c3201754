package ratelimitotel

import (
	"maps"
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
// It counts by itself and hands the counts over when they are collected,
// because adding to an SDK's counter takes many times as long as adding to a
// number, for each policy of each request. It also lets an outcome that has
// not happened yet stand at 0. The histogram is the SDK's, with its exemplars,
// by which one finds the trace of a request that was refused.
type decisions struct {
	limiters []*middleware.Limiter
	counter  metric.Int64ObservableCounter
	duration metric.Float64Histogram
	outcomes [outcomes][]metric.RecordOption // the attributes of duration

	mu       sync.Mutex // for adding to policies
	policies atomic.Pointer[map[string]*counts]
}

// counts are those of a policy, by outcome.
type counts struct {
	n          [outcomes]atomic.Int64
	attributes [outcomes]metric.MeasurementOption
}

const (
	// maxPolicies bounds what reloads can bring, so that all outcomes of all
	// policies stay below the 2,000 sets of attributes that SDKs keep.
	maxPolicies = 256

	otherPolicies = "_OTHER" // as the semantic conventions say it
)

// bounds go from less than a decision in memory takes to twice the Timeout that
// a redisstore.Store has by default.
var bounds = []float64{
	1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6,
	1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3,
}

func newDecisions(meter metric.Meter, limiters []*middleware.Limiter) (*decisions, error) {
	ds := &decisions{limiters: limiters}
	ds.policies.Store(&map[string]*counts{})
	for o := range outcomes {
		ds.outcomes[o] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(o.attribute()))}
	}
	var err error
	ds.duration, err = meter.Float64Histogram("ratelimit.decision.duration",
		metric.WithUnit("s"),
		metric.WithDescription("How long requests were being decided, by their outcome."),
		metric.WithExplicitBucketBoundaries(bounds...))
	if err != nil {
		return nil, err
	}
	ds.counter, err = meter.Int64ObservableCounter("ratelimit.decisions",
		metric.WithUnit("{decision}"),
		metric.WithDescription("Outcomes of policies for requests."))
	return ds, err
}

// observe takes note of a decision.
func (ds *decisions) observe(r *http.Request, d middleware.Decision) {
	away := d.Degraded()
	var v verdict
	for i := range d.Results {
		p := &d.Results[i]
		o := outcomeOf(p, &d, away)
		ds.of(p.Policy).n[o].Add(1)
		v.add(o, p.Policy, &p.Result)
	}
	for _, name := range away {
		if !slices.ContainsFunc(d.Results, func(p middleware.PolicyResult) bool { return p.Policy == name }) {
			ds.of(name).n[degraded].Add(1)
			v.add(degraded, name, nil)
		}
	}
	if v.policy == "" {
		return // no policy applies to the request
	}
	ds.duration.Record(r.Context(), d.Took.Seconds(), ds.outcomes[v.outcome]...)
	if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
		v.describe(span)
	}
}

// of returns the counts of a policy.
func (ds *decisions) of(name string) *counts {
	known := *ds.policies.Load()
	if c := known[name]; c != nil {
		return c
	}
	if len(known) > maxPolicies {
		return known[otherPolicies]
	}
	return ds.add(name)
}

func (ds *decisions) add(name string) *counts {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	known := *ds.policies.Load()
	if known[name] == nil && len(known) >= maxPolicies {
		name = otherPolicies
	}
	if c := known[name]; c != nil {
		return c
	}
	c := new(counts)
	for o := range outcomes {
		c.attributes[o] = metric.WithAttributeSet(attribute.NewSet(policyKey.String(name), o.attribute()))
	}
	more := maps.Clone(known)
	more[name] = c
	ds.policies.Store(&more)
	return c
}

// collect tells the counts of all policies that are or have been.
func (ds *decisions) collect(to metric.Observer) {
	for _, l := range ds.limiters {
		for _, p := range l.Policies() {
			ds.of(p.Name)
		}
	}
	for _, c := range *ds.policies.Load() {
		for o := range outcomes {
			to.ObserveInt64(ds.counter, c.n[o].Load(), c.attributes[o])
		}
	}
}
