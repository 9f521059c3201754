package ratelimitotel_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// onceThen returns a cost of 1 for the first request, and n for those that follow.
func onceThen(n int64) func(*http.Request) int64 {
	cost := int64(1)
	return func(*http.Request) int64 {
		defer func() { cost = n }()
		return cost
	}
}

func TestSpanAttributes(t *testing.T) {
	subject := key("secret-subject")
	hour := gcra.PerHour(2)
	for _, test := range []struct {
		name     string
		down     bool
		policies []middleware.Policy
		want     []string // after each request
	}{
		{"the closest policy, then the one that denies", false, []middleware.Policy{
			{Name: "wide", Key: subject, Limit: gcra.PerDay(9)},
			{Name: "hour", Key: subject, Limit: hour},
		}, []string{"allowed hour 1", "allowed hour 0", "denied hour 0"}},
		{"of policies that deny the one with the longest wait", false, []middleware.Policy{
			{Name: "hour", Key: subject, Limit: gcra.PerHour(1)},
			{Name: "day", Key: subject, Limit: gcra.PerDay(1)},
			{Name: "minute", Key: subject, Limit: gcra.PerMinute(1)},
		}, []string{"allowed day 0", "denied day 0"}},
		{"no wait helps", false, []middleware.Policy{
			{Name: "day", Key: subject, Limit: gcra.PerDay(1)},
			{Name: "expensive", Key: subject, Limit: gcra.PerHour(2), Cost: onceThen(3)},
		}, []string{"allowed day 0", "denied expensive 1"}},
		{"a shadow policy that would deny", false, []middleware.Policy{
			{Name: "hour", Key: subject, Limit: hour},
			{Name: "tight", Key: subject, Limit: gcra.PerHour(1), Shadow: true},
		}, []string{"allowed tight 0", "shadow_denied tight 0", "denied hour 0"}},
		{"held back", false, []middleware.Policy{
			{Name: "hour", Key: subject, Limit: hour},
			{Name: "slow", Key: subject, Limit: gcra.PerHour(1), MaxDelay: time.Hour},
		}, []string{"allowed slow 0", "delayed slow 0"}},
		{"down: decided here", true, []middleware.Policy{
			{Name: "open", Key: subject, Limit: hour, OnFailure: middleware.FailOpen},
			{Name: "hour", Key: subject, Limit: hour},
		}, []string{"degraded hour 1", "degraded hour 0", "denied hour 0"}},
		{"down: not decided", true, []middleware.Policy{
			{Name: "login", Key: subject, Limit: hour, OnFailure: middleware.FailClosed},
		}, []string{"degraded login"}},
		{"a ban, which says nothing of the bucket", false, []middleware.Policy{
			{Name: "login", Key: subject, Limit: hour, Override: func(string) (middleware.Override, bool) {
				return middleware.Override{Banned: true}, true
			}},
		}, []string{"denied login"}},
		{"no policy applies", false, []middleware.Policy{
			{Name: "hour", Key: subject, Limit: hour, Routes: []string{"/elsewhere"}},
		}, []string{""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spans := tracetest.NewSpanRecorder()
			tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
			s := doubles.NewStore()
			s.SetDown(test.down)
			l := limiter(t, s, test.policies...)
			instrument(t, l)

			for range test.want {
				ctx, span := tracer.Start(t.Context(), "request")
				l.Decide(get("/").WithContext(ctx))
				span.End()
			}

			ended := spans.Ended()
			if len(ended) != len(test.want) {
				t.Fatalf("got %d spans; want %d", len(ended), len(test.want))
			}
			for i, span := range ended {
				got := map[attribute.Key]string{}
				for _, kv := range span.Attributes() {
					got[kv.Key] = kv.Value.String()
				}

				words := []string{got["ratelimit.outcome"], got["ratelimit.policy"], got["ratelimit.remaining"]}
				if line := strings.TrimSpace(strings.Join(words, " ")); line != test.want[i] {
					t.Errorf("request %d: got %q; want %q", i+1, line, test.want[i])
				}
				for _, word := range words {
					if strings.Contains(word, "secret") {
						t.Errorf("request %d: got %v; want no subject", i+1, got)
					}
				}
				if n := len(strings.Fields(test.want[i])); len(got) != n {
					t.Errorf("request %d: got attributes %q; want %d", i+1, slices.Collect(maps.Keys(got)), n)
				}
			}
		})
	}
}

// A span that is not recorded gets no attributes.
func TestSpanNotSampled(t *testing.T) {
	tracer := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())).Tracer("test")
	l := limiter(t, doubles.NewStore(), middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1)})
	reader := instrument(t, l)
	ctx, span := tracer.Start(t.Context(), "request")
	defer span.End()
	l.Decide(get("/").WithContext(ctx))
	if got, _ := counts(t, reader); got != "only allowed 1" {
		t.Errorf("got %s; want 1 allowed", got)
	}
}
