package ratelimitotel_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	ratelimitotel "github.com/seed-e377111c/ratelimit/adapters/otel"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestOutcomes(t *testing.T) {
	one, many := gcra.PerHour(1), gcra.PerHour(100)
	k := key("k")
	p := func(name string, limit gcra.Limit, changes ...func(*middleware.Policy)) middleware.Policy {
		p := middleware.Policy{Name: name, Key: k, Limit: limit}
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

	for _, test := range []struct {
		name              string
		down              bool
		policies          []middleware.Policy
		requests          int
		counts, byRequest string
	}{
		{"only the policy that denies has the outcome denied", false,
			[]middleware.Policy{p("hour", one), p("day", many)}, 3,
			"day allowed 3, hour allowed 1, hour denied 2", "allowed 1, denied 2"},
		{"a shadow policy denies nothing", false,
			[]middleware.Policy{p("tight", one, shadow), p("wide", many)}, 3,
			"tight allowed 1, tight shadow_denied 2, wide allowed 3", "allowed 1, shadow_denied 2"},
		{"a delay", false,
			[]middleware.Policy{p("slow", one, patient), p("wide", many)}, 4,
			"slow allowed 1, slow delayed 2, slow denied 1, wide allowed 4", "allowed 1, delayed 2, denied 1"},
		{"a shadow policy delays nothing", false,
			[]middleware.Policy{p("slow", one, patient, shadow)}, 2,
			"slow allowed 2", "allowed 2"},
		{"a shadow beside a delay", false,
			[]middleware.Policy{p("slow", one, patient), p("slower", one, patient, shadow)}, 2,
			"slow allowed 1, slow delayed 1, slower allowed 2", "allowed 1, delayed 1"},
		{"a delay counts before a shadow denial", false,
			[]middleware.Policy{p("slow", one, patient), p("tight", one, shadow)}, 2,
			"slow allowed 1, slow delayed 1, tight allowed 1, tight shadow_denied 1", "allowed 1, delayed 1"},
		{"a denied request has no delay", false,
			[]middleware.Policy{p("here", one, broken), p("slow", one, patient)}, 2,
			"here degraded 1, here denied 1, slow allowed 2", "degraded 1, denied 1"},
		{"down: decided here, and denials are denials", true,
			[]middleware.Policy{p("hour", one), p("day", many)}, 3,
			"day degraded 3, hour degraded 1, hour denied 2", "degraded 1, denied 2"},
		{"down: passed uncounted", true,
			[]middleware.Policy{p("courtesy", one, open)}, 3,
			"courtesy degraded 3", "degraded 3"},
		{"down: 503", true,
			[]middleware.Policy{p("login", one, closed)}, 3,
			"login degraded 3", "degraded 3"},
		{"down: a shadow policy is degraded too", true,
			[]middleware.Policy{p("tight", one, shadow)}, 3,
			"tight degraded 3", "degraded 3"},
		{"one key fails", false,
			[]middleware.Policy{p("user", many, broken, open), p("wide", many)}, 3,
			"user degraded 3, wide allowed 3", "degraded 3"},
		{"not evaluated, because the request is denied already", false,
			[]middleware.Policy{p("user", many, broken, closed), p("wide", many)}, 3,
			"user degraded 3", "degraded 3"},
		{"not decided here, because the request is denied by the store", false,
			[]middleware.Policy{p("here", many, broken), p("hour", one)}, 2,
			"here degraded 2, hour allowed 1, hour denied 1", "degraded 1, denied 1"},
		{"no policy applies", false,
			[]middleware.Policy{p("skipped", one, skip)}, 3,
			"", ""},
		{"one of two applies", false,
			[]middleware.Policy{p("skipped", one, skip), p("wide", many)}, 3,
			"wide allowed 3", "allowed 3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := doubles.NewStore()
			s.SetDown(test.down)
			l := limiter(t, s, test.policies...)
			reader := instrument(t, l)
			for range test.requests {
				l.Decide(get("/"))
			}

			policies, requests := counts(t, reader)
			if policies != test.counts || requests != test.byRequest {
				t.Errorf("after %d requests: got %s; of requests %s\nwant %s; of requests %s",
					test.requests, policies, requests, test.counts, test.byRequest)
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
