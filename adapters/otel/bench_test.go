package ratelimitotel_test

import (
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// two returns a limiter of two policies that never denies.
func two(t testing.TB, observed bool) *middleware.Limiter {
	l := limiter(t, gcra.NewMemory(),
		middleware.Policy{Name: "burst", Key: key("k"), Limit: gcra.PerSecond(500_000).WithBurst(1_000_000)},
		middleware.Policy{Name: "daily", Key: key("k"), Limit: gcra.PerSecond(300_000).WithBurst(2_000_000)})
	if observed {
		instrument(t, l)
	}
	return l
}

// An observer costs a request one allocation, its Results, which Decide makes in any case.
func TestOneAllocation(t *testing.T) {
	bare, observed := two(t, false), two(t, true)
	r, w := get("/"), httptest.NewRecorder()
	for _, tt := range []struct {
		name   string
		more   float64
		decide func(*middleware.Limiter)
	}{
		{"Decide", 0, func(l *middleware.Limiter) { l.Decide(r) }},
		{"Allow", 1, func(l *middleware.Limiter) { l.Allow(w, r) }},
	} {
		want := testing.AllocsPerRun(1000, func() { tt.decide(bare) }) + tt.more
		if got := testing.AllocsPerRun(1000, func() { tt.decide(observed) }); got != want {
			t.Errorf("%s: got %v allocations; want %v, %v more than without an observer", tt.name, got, want, tt.more)
		}
	}
}

// BenchmarkDecide decides by two policies, without and with an observer.
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
