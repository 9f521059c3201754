package ratelimitotel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Overrides are the overrides and bans that operators set for all servers, as package
// middleware/fleet has them.
type Overrides interface{ InForce() (limits, bans int) }

const overrideKindKey = attribute.Key("ratelimit.override.kind")

// InstrumentOverrides reports how many overrides are in force on this server, for the life of
// the process. Call it once, with a provider such as [otel.GetMeterProvider]. A nil argument
// is an error.
func InstrumentOverrides(provider metric.MeterProvider, o Overrides) error {
	if provider == nil || o == nil {
		return errors.New("ratelimitotel: the MeterProvider or the Overrides are nil; want both")
	}

	_, err := provider.Meter(scope).Int64ObservableGauge("ratelimit.overrides",
		metric.WithUnit("{override}"),
		metric.WithDescription("Overrides and bans of operators that are in force on this server."),
		metric.WithInt64Callback(func(_ context.Context, to metric.Int64Observer) error {
			// Both kinds are there also as 0: an alert on a series that is missing stays silent.
			limits, bans := o.InForce()
			to.Observe(int64(limits), metric.WithAttributes(overrideKindKey.String("limit")))
			to.Observe(int64(bans), metric.WithAttributes(overrideKindKey.String("ban")))
			return nil
		}))
	if err != nil {
		return fmt.Errorf("ratelimitotel: %w", err)
	}
	return nil
}
