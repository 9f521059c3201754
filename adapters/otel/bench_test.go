package ratelimitotel_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// two is a limiter of two policies that never refuses.
func two(t testing.TB, observed bool) *middleware.Limiter {
	limit := gcra.PerSecond(500_000).WithBurst(1_000_000)
	l := limiter(t, gcra.NewMemory(),
		middleware.Policy{Name: "burst", Key: key("k"), Limit: limit},
		middleware.Policy{Name: "daily", Key: key("k"), Limit: limit})
	if observed {
		instrument(t, l)
	}
	return l
}

// Being observed costs a request no allocation.
func TestNoAllocations(t *testing.T) {
	bare, observed := two(t, false), two(t, true)
	r := get("/")
	want := testing.AllocsPerRun(1000, func() { bare.Decide(r) })
	if got := testing.AllocsPerRun(1000, func() { observed.Decide(r) }); got != want {
		t.Errorf("got %v allocations for a decision; want %v as without an observer", got, want)
	}
}

// BenchmarkDecide is a decision about two policies, and what it takes to
// observe it.
func BenchmarkDecide(b *testing.B) {
	tracer := trace.NewTracerProvider().Tracer("benchmark")
	for _, bench := range []struct {
		name               string
		observed, recorded bool
	}{{"bare", false, false}, {"observed", true, false}, {"recorded", true, true}} {
		b.Run(bench.name, func(b *testing.B) {
			l := two(b, bench.observed)
			r := get("/")
			if bench.recorded {
				ctx, span := tracer.Start(b.Context(), "request")
				defer span.End()
				r = r.WithContext(ctx)
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Decide(r)
			}
		})
	}
}
