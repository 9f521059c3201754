package ratelimitotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// InFlight has the slots of a server: an *inflight.Limiter.
type InFlight interface {
	Stats(each func(name string, held, denied int64))
}

// InstrumentInFlight reports the slots of a limiter of package inflight, for the life of the
// process. Call it once, with a provider such as [otel.GetMeterProvider]. A nil argument is an
// error.
func InstrumentInFlight(provider metric.MeterProvider, l InFlight) error {
	if provider == nil || l == nil {
		return errors.New("ratelimitotel: the MeterProvider or the Limiter are nil; want both")
	}

	meter := provider.Meter(scope)
	held, err1 := meter.Int64ObservableUpDownCounter("ratelimit.inflight.held",
		metric.WithUnit("{slot}"),
		metric.WithDescription("Slots that this server holds."))
	denied, err2 := meter.Int64ObservableCounter("ratelimit.inflight.denied",
		metric.WithUnit("{request}"),
		metric.WithDescription("Requests and jobs that found no free slot."))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("ratelimitotel: %w", err)
	}

	// One callback for both, so that they are of one moment.
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		l.Stats(func(name string, slots, denials int64) {
			policy := metric.WithAttributes(policyKey.String(name))
			to.ObserveInt64(held, slots, policy)
			to.ObserveInt64(denied, denials, policy)
		})
		return nil
	}, held, denied)
	if err != nil {
		return fmt.Errorf("ratelimitotel: %w", err)
	}
	return nil
}
