package ratelimitotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// scope is the name of the meter.
const scope = "github.com/seed-e377111c/ratelimit/adapters/otel"

// reporting are the limiters that report: no call observes one twice.
var reporting = struct {
	sync.Mutex
	limiters map[*middleware.Limiter]bool
}{limiters: map[*middleware.Limiter]bool{}}

// Instrument reports the limiters' decisions, and the Stats of their stores, to a provider such as
// [otel.GetMeterProvider], and to the spans of their requests, for the life of the process.
// [otel.SetMeterProvider] may be called later.
//
// Call it once, with all limiters. A limiter that is nil is an error, and so is one that is repeated or
// reports already: its decisions would count twice. After an error this call observes no limiter.
func Instrument(provider metric.MeterProvider, limiters ...*middleware.Limiter) error {
	reporting.Lock()
	defer reporting.Unlock()
	err := check(provider, limiters)
	if err == nil {
		err = report(provider.Meter(scope), limiters)
	}
	if err != nil {
		return fmt.Errorf("ratelimitotel: %w", err)
	}
	return nil
}

func report(meter metric.Meter, limiters []*middleware.Limiter) error {
	ds, err := newDecisions(meter, limiters)
	rs, err2 := newRedis(meter, statsStores(limiters))
	if err := errors.Join(err, err2); err != nil {
		return err
	}

	_, err = meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		ds.collect(to)
		rs.collect(to)
		return nil
	}, append(rs.observables, ds.counter, ds.nearEnd)...)
	if err != nil {
		return err
	}

	// Observers cannot be removed, so they come after all that may fail.
	for _, l := range limiters {
		l.Observe(ds.observe)
		reporting.limiters[l] = true
	}
	return nil
}

func check(provider metric.MeterProvider, limiters []*middleware.Limiter) error {
	if provider == nil {
		return errors.New("the MeterProvider is nil; want one such as otel.GetMeterProvider()")
	}

	if len(limiters) == 0 {
		return errors.New("no limiters; want at least one")
	}

	for i, l := range limiters {
		if l == nil {
			return fmt.Errorf("limiter number %d is nil; want one from middleware.New", i+1)
		}
		if reporting.limiters[l] || slices.Contains(limiters[:i], l) {
			return fmt.Errorf("limiter number %d is repeated, or reports already; want each once, or its decisions count twice", i+1)
		}
	}
	return nil
}
