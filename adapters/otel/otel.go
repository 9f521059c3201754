package ratelimitotel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"weak"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// scope is the name of the meter.
const scope = "github.com/seed-e377111c/ratelimit/adapters/otel"

// Instrument has the decisions of the limiters, and what their stores do,
// reported to the global MeterProvider ([otel.SetMeterProvider] may come later)
// and to the spans of their requests, for as long as the process lives.
//
// Give all limiters in one call: then a store that they share is counted once.
// Each may be given once, as all that it decides would count double otherwise.
// An error means that this call has changed nothing: a limiter is nil, is there
// twice or has been given before, or the provider does not make the metrics.
func Instrument(limiters ...*middleware.Limiter) error {
	return InstrumentWith(otel.GetMeterProvider(), limiters...)
}

// InstrumentWith is Instrument for a MeterProvider of one's own.
func InstrumentWith(provider metric.MeterProvider, limiters ...*middleware.Limiter) error {
	given.Lock()
	defer given.Unlock()
	if err := check(provider, limiters); err != nil {
		return fmt.Errorf("ratelimitotel: %w", err)
	}
	if err := report(provider.Meter(scope), limiters); err != nil {
		return fmt.Errorf("ratelimitotel: %w", err)
	}
	for _, l := range limiters {
		given.limiters[weak.Make(l)] = struct{}{}
	}
	return nil
}

// given are the limiters that are reported already. They may go when their
// program has done with them.
var given = struct {
	sync.Mutex
	limiters map[weak.Pointer[middleware.Limiter]]struct{}
}{limiters: map[weak.Pointer[middleware.Limiter]]struct{}{}}

func report(meter metric.Meter, limiters []*middleware.Limiter) error {
	ds, err := newDecisions(meter, limiters)
	if err != nil {
		return err
	}
	collect, collected := ds.collect, []metric.Observable{ds.counter}
	if stores := countingStores(limiters); len(stores) > 0 {
		rs, err := newRedis(meter, stores)
		if err != nil {
			return err
		}
		collect = func(to metric.Observer) { ds.collect(to); rs.collect(to) }
		collected = append(collected, rs.trips, rs.carried, rs.failures, rs.mirrored, rs.tripTime, rs.breakers)
	}
	_, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		collect(to)
		return nil
	}, collected...)
	if err != nil {
		return err
	}
	for _, l := range limiters {
		l.Observe(ds.observe)
	}
	return nil
}

func check(provider metric.MeterProvider, limiters []*middleware.Limiter) error {
	if provider == nil {
		return errors.New("the MeterProvider is nil; want one, or Instrument, which takes the global one")
	}
	if len(limiters) == 0 {
		return errors.New("no limiters; want at least one")
	}
	seen := map[*middleware.Limiter]bool{}
	for i, l := range limiters {
		if l == nil {
			return fmt.Errorf("limiter number %d is nil; want one from middleware.New", i+1)
		}
		if seen[l] {
			return fmt.Errorf("limiter number %d is there already; want each once, or it counts double", i+1)
		}
		if _, before := given.limiters[weak.Make(l)]; before {
			return fmt.Errorf("limiter number %d was given in an earlier call; want each once, or it counts double", i+1)
		}
		seen[l] = true
	}
	return nil
}
