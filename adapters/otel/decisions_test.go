package ratelimitotel_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestOutcomes(t *testing.T) {
	one, many := gcra.PerHour(1), gcra.PerHour(100)
	p := func(name string, limit gcra.Limit, changes ...func(*middleware.Policy)) middleware.Policy {
		p := middleware.Policy{Name: name, Key: key("secret-subject"), Limit: limit}
		for _, change := range changes {
			change(&p)
		}
		return p
	}
	shadow := func(p *middleware.Policy) { p.Shadow = true }
	patient := func(p *middleware.Policy) { p.MaxDelay = 2 * time.Hour }
	broken := func(p *middleware.Policy) { p.Key = keyFails }
	open := func(p *middleware.Policy) { p.OnFailure = middleware.FailOpen }
	closed := func(p *middleware.Policy) { p.OnFailure = middleware.FailClosed }
	skip := func(p *middleware.Policy) { p.Skip = func(*http.Request) bool { return true } }
	banned := func(p *middleware.Policy) {
		p.Override = func(string) (middleware.Override, bool) { return middleware.Override{Banned: true}, true }
	}

	for _, test := range []struct {
		name              string
		down              bool
		policies          []middleware.Policy
		counts, byRequest string
		spans             []string // of each request: outcome, policy and what it has left
	}{
		{"only the policy that denies has the outcome denied", false,
			[]middleware.Policy{p("hour", one), p("day", many)},
			"day allowed 3, hour allowed 1, hour denied 2", "allowed 1, denied 2",
			[]string{"allowed hour 0", "denied hour 0", "denied hour 0"}},
		{"the first policy with the outcome", false,
			[]middleware.Policy{p("hour", one), p("day", gcra.PerDay(1)), p("minute", gcra.PerMinute(1))},
			"day allowed 1, day denied 1, hour allowed 1, hour denied 1, minute allowed 1, minute denied 1", "allowed 1, denied 1",
			[]string{"allowed hour 0", "denied hour 0"}},
		{"a shadow policy denies nothing", false,
			[]middleware.Policy{p("tight", one, shadow), p("wide", many)},
			"tight allowed 1, tight shadow_denied 2, wide allowed 3", "allowed 1, shadow_denied 2",
			[]string{"allowed tight 0", "shadow_denied tight 0", "shadow_denied tight 0"}},
		{"a delay", false,
			[]middleware.Policy{p("slow", one, patient), p("wide", many)},
			"slow allowed 1, slow delayed 2, slow denied 1, wide allowed 4", "allowed 1, delayed 2, denied 1",
			[]string{"allowed slow 0", "delayed slow 0", "delayed slow 0", "denied slow 0"}},
		{"a shadow policy delays nothing", false,
			[]middleware.Policy{p("slow", one, patient), p("slower", one, patient, shadow)},
			"slow allowed 1, slow delayed 1, slower allowed 2", "allowed 1, delayed 1",
			[]string{"allowed slow 0", "delayed slow 0"}},
		{"a delay counts before a shadow denial", false,
			[]middleware.Policy{p("slow", one, patient), p("tight", one, shadow)},
			"slow allowed 1, slow delayed 1, tight allowed 1, tight shadow_denied 1", "allowed 1, delayed 1",
			[]string{"allowed slow 0", "delayed slow 0"}},
		{"a denied request has no delay", false,
			[]middleware.Policy{p("here", one, broken), p("slow", one, patient)},
			"here degraded 1, here denied 1, slow allowed 2", "degraded 1, denied 1",
			[]string{"degraded here 0", "denied here 0"}},
		{"down: decided here, and denials are denials", true,
			[]middleware.Policy{p("open", many, open), p("hour", one), p("day", many)},
			"day degraded 3, hour degraded 1, hour denied 2, open degraded 3", "degraded 1, denied 2",
			[]string{"degraded hour 0", "denied hour 0", "denied hour 0"}},
		{"down: passed uncounted", true,
			[]middleware.Policy{p("courtesy", one, open)}, "courtesy degraded 2", "degraded 2",
			[]string{"degraded courtesy", "degraded courtesy"}},
		{"down: 503", true,
			[]middleware.Policy{p("login", one, closed)}, "login degraded 2", "degraded 2",
			[]string{"degraded login", "degraded login"}},
		{"down: a shadow policy is degraded too", true,
			[]middleware.Policy{p("tight", one, shadow)}, "tight degraded 2", "degraded 2",
			[]string{"degraded tight 0", "degraded tight 0"}},
		{"one key fails", false,
			[]middleware.Policy{p("user", many, broken, open), p("wide", many)}, "user degraded 1, wide allowed 1", "degraded 1",
			[]string{"degraded user"}},
		{"not evaluated, because the request is denied already", false,
			[]middleware.Policy{p("user", many, broken, closed), p("wide", many)}, "user degraded 1", "degraded 1",
			[]string{"degraded user"}},
		{"not decided here, because the request is denied by the store", false,
			[]middleware.Policy{p("here", many, broken), p("hour", one)},
			"here degraded 2, hour allowed 1, hour denied 1", "degraded 1, denied 1",
			[]string{"degraded here 99", "denied hour 0"}},
		{"a ban, which says nothing of the bucket", false,
			[]middleware.Policy{p("login", one, banned)}, "login denied 1", "denied 1",
			[]string{"denied login"}},
		{"no policy applies", false,
			[]middleware.Policy{p("skipped", one, skip)}, "", "", []string{""}},
		{"one of two applies", false,
			[]middleware.Policy{p("skipped", one, skip), p("wide", many)}, "wide allowed 1", "allowed 1",
			[]string{"allowed wide 99"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ended := tracetest.NewSpanRecorder()
			tracer := trace.NewTracerProvider(trace.WithSpanProcessor(ended)).Tracer("test")
			s := doubles.NewStore()
			s.SetDown(test.down)
			l := limiter(t, s, test.policies...)
			reader := instrument(t, l)

			var spans []string
			for range test.spans {
				ctx, span := tracer.Start(t.Context(), "request")
				l.Decide(get("/").WithContext(ctx))
				span.End()
				var words []string
				for i, kv := range ended.Ended()[len(spans)].Attributes() {
					words = append(words, kv.Value.String())
					if want := []attribute.Key{"ratelimit.outcome", "ratelimit.policy", "ratelimit.remaining"}[i]; kv.Key != want {
						t.Errorf("got attribute %s; want %s", kv.Key, want)
					}
				}
				spans = append(spans, strings.Join(words, " "))
			}

			policies, requests := counts(t, reader)
			if policies != test.counts || requests != test.byRequest || !slices.Equal(spans, test.spans) {
				t.Errorf("got %s; of requests %s; spans %q\nwant %s; of requests %s; spans %q",
					policies, requests, spans, test.counts, test.byRequest, test.spans)
			}
		})
	}
}

// Outcomes that have not happened are 0 before the first request, also for a policy that
// a reload adds: a rate over a series that begins at 1 would miss the 1.
func TestZeros(t *testing.T) {
	l := limiter(t, doubles.NewStore(), middleware.Policy{Name: "a", Key: key("k"), Limit: gcra.PerHour(1)})
	reader := instrument(t, l)
	check := func(names ...string) {
		t.Helper()
		got := read(t, reader, "ratelimit.decisions")
		if len(got) != 5*len(names) {
			t.Errorf("got %v; want 5 outcomes of each of %q", got, names)
		}

		for _, name := range names {
			for _, o := range []string{"allowed", "shadow_denied", "delayed", "degraded", "denied"} {
				if n, ok := got["ratelimit.outcome="+o+" ratelimit.policy="+name]; !ok || n != 0 {
					t.Errorf("%s of %s: got %v, %t; want 0", o, name, n, ok)
				}
			}
		}
	}

	check("a")
	if got := read(t, reader, "ratelimit.redis.batches"); got != nil {
		t.Errorf("got batches %v of a store that has no statistics; want none", got)
	}
	if err := l.Reload(middleware.Policy{Name: "b", Key: key("k"), Limit: gcra.PerHour(1)}); err != nil {
		t.Fatal(err)
	}
	check("a", "b")
}

// Limiters with policies of the same name share their counts.
func TestSeveralLimiters(t *testing.T) {
	policy := middleware.Policy{Name: "shared", Key: key("k"), Limit: gcra.PerHour(3)}
	s := doubles.NewStore()
	outer, inner := limiter(t, s, policy), limiter(t, s, policy)
	reader := instrument(t, outer, inner)
	for range 2 {
		outer.Decide(get("/"))
		inner.Decide(get("/"))
	}
	if got, _ := counts(t, reader); got != "shared allowed 3, shared denied 1" {
		t.Errorf("got %s; want 3 allowed, 1 denied", got)
	}
}

// A quota near its end is counted while it still allows requests: not a denial or a ban, and
// not the share that a server has of it while the store is down. The count begins at 0.
func TestQuotaNearEnd(t *testing.T) {
	s, banned := doubles.NewStore(), false
	l, err := middleware.New(middleware.Config{Store: s, Override: func(string, string) (middleware.Override, bool) {
		return middleware.Override{Banned: true}, banned
	}},
		middleware.Policy{Name: "month", Key: key("k"), Limit: gcra.Quota(20, gcra.Monthly)},
		middleware.Policy{Name: "hour", Key: key("k"), Limit: gcra.PerHour(1000)})
	if err != nil {
		t.Fatal(err)
	}

	reader := instrument(t, l)
	check := func(when string, want float64) {
		t.Helper()
		got := read(t, reader, "ratelimit.quota.near_end")
		if n, ok := got["ratelimit.policy=month"]; !ok || n != want || len(got) != 1 {
			t.Errorf("%s: got %v; want %v of month", when, got, want)
		}
	}

	check("before the first request", 0)
	for range 17 {
		l.Decide(get("/"))
	}
	check("3 of 20 are left", 0)
	for range 3 {
		l.Decide(get("/"))
	}
	check("after those that left 2, 1 and 0", 3)

	l.Decide(get("/"))
	check("after a denial", 3)

	banned = true
	l.Decide(get("/"))
	check("after a ban", 3)

	banned = false
	s.SetDown(true)
	l.Decide(get("/"))
	check("while the store is down", 3)
}

// A collection finds the overrides that are in force at its moment.
func TestOverrides(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	o := &inForce{1, 0}
	if err := ratelimitotel.InstrumentOverrides(provider, o); err != nil {
		t.Fatal(err)
	}

	for _, want := range []inForce{{1, 0}, {2, 5}, {0, 0}} {
		*o = want
		got := read(t, reader, "ratelimit.overrides")
		if got["ratelimit.override.kind=limit"] != float64(want.limits) || got["ratelimit.override.kind=ban"] != float64(want.bans) || len(got) != 2 {
			t.Errorf("got %v; want %+v", got, want)
		}
	}

	for _, err := range []error{ratelimitotel.InstrumentOverrides(nil, o), ratelimitotel.InstrumentOverrides(provider, nil)} {
		if err == nil || !strings.Contains(err.Error(), "want both") {
			t.Errorf("got %v; want an error", err)
		}
	}
}
