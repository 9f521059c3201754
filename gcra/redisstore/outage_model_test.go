package redisstore

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
)

// outageModel is a Redis with one bucket of a rate, or of a quota, and servers that lose it. It knows
// all admissions. Its servers are stores without a client: the model does what take.lua and
// report.lua do.
type outageModel struct {
	now     int64 // ticks, of all clocks
	limit   gcra.Limit
	servers []*modelServer

	tat     int64 // in Redis
	history int64 // the TAT of a bucket without a clamp that has taken all admissions
	base    int64 // of history when it was changed last
}

type modelServer struct {
	*Store
	up     bool
	marker marker // of its last report, in Redis
}

func newOutageModel(n int, l gcra.Limit) *outageModel {
	m := &outageModel{limit: l, now: tat.At(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	clock := buckets.NewClock(func() time.Time { return tat.Time(m.now) })
	for range n {
		s := &modelServer{Store: &Store{ttl: time.Second}, up: true}
		s.compose(clock)
		s.reporter.running.Store(true) // the model reports, no loop
		m.servers = append(m.servers, s)
	}
	return m
}

// request asks for units, and reports whether they are granted.
func (m *outageModel) request(t *rapid.T, s *modelServer, units int64) bool {
	charges := []gcra.Charge{{Subject: "s", Policy: "p", Limit: m.limit, Cost: units}}
	admission := make([]buckets.Charge, 1)
	c := &admission[0]
	if err := s.known.Prepare(&charges[0], false, c); err != nil {
		t.Fatal(err)
	}

	admitted := false
	switch {
	case s.known.Deny(admission, charges): // also while Redis is away
	case s.up:
		c.Ahead = c.Clamp(m.tat, c.Base(s.clock, m.now))
		if admitted = c.Admits(c.Ahead); admitted {
			m.tat = c.Base(s.clock, m.now) + c.After(c.Ahead)
		}
		s.known.Learn(admission, admitted, m.now, m.now)

	default:
		var err error
		if admitted, err = s.Local(len(m.servers)).Take(t.Context(), charges); err != nil {
			t.Fatal(err)
		}
	}

	if admitted {
		m.base = c.Base(s.clock, m.now)
		m.history = max(m.history, m.base) + c.Inc
	}

	return admitted
}

// report reports what a server that reaches Redis has granted alone.
func (m *outageModel) report(s *modelServer, requestLost, replyLost bool) {
	for _, r := range s.reporter.grants.Reports(m.now, maxRound) {
		if requestLost {
			continue
		}
		charged, ahead := reportStep(&r, &m.tat, &s.marker, m.now)
		if !replyLost {
			s.reporter.record(&r, charged, ahead, m.now)
		}
	}
}

// marker says what report.lua has charged under an id.
type marker struct {
	id      string
	charged int64
}

// reportStep is what report.lua does with a report. A TAT of 0 is none.
func reportStep(r *outage.Report, tat *int64, m *marker, now int64) (charged, ahead int64) {
	base := now
	if r.Ends > 0 {
		base = r.Ends
	}
	if now < r.Begins && *tat < r.Ends {
		base = r.Begins
		defer func() { ahead = min(ahead, 0) }()
	}
	ahead = max(*tat-base, 0)

	switch {
	case ahead > r.Top, now < r.Previous, r.Ends > 0 && now >= r.Ends:
		return 0, -1
	case m.id == r.ID:
		return m.charged, ahead
	}

	charged = min(r.Amount, r.Top-ahead)
	if charged > 0 {
		*tat, *m = base+ahead+charged, marker{r.ID, charged}
	}
	return charged, ahead + charged
}

func (m *outageModel) unreported() bool {
	for _, s := range m.servers {
		if s.reporter.grants.Any() {
			return true
		}
	}
	return false
}

// A late charge that was granted alone moves the TAT in Redis no further ahead than its limit does.
func TestReportOfALateCharge(t *testing.T) {
	s := newOutageModel(1, gcra.PerSecond(1)).servers[0]
	late := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.PerSecond(1).WithBurst(5), Cost: 9, MaxDebt: 2, Late: true}
	if r, err := gcra.Take(t.Context(), s.Local(1), late); err != nil || r.Taken != 7 {
		t.Fatalf("got %+v, %v; want 7 units taken", r, err)
	}
	if r := s.reporter.grants.Reports(s.clock.Now(), 1)[0]; r.Amount != r.Top || r.Top != tat.Ticks(7*time.Second) {
		t.Errorf("got a report of %d up to %d; want both 7 s", r.Amount, r.Top)
	}
}

// One server and a Redis that comes and goes admit what one bucket admits, neither more nor,
// while no reply is lost, less.
func TestOutageOfOneServerIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		burst := rapid.Int64Range(1, 6).Draw(t, "burst")
		m := newOutageModel(1, gcra.Limit{Count: 1, Per: time.Second, Burst: burst})

		s, span := m.servers[0], burst*tat.Ticks(time.Second)
		lossy, lost := rapid.Bool().Draw(t, "lossy"), false
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				m.now += tat.Ticks(time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond)
			},
			"switch": func(*rapid.T) { s.up = !s.up },
			"report": func(t *rapid.T) {
				request := lossy && rapid.Bool().Draw(t, "request lost")
				reply := lossy && rapid.Bool().Draw(t, "reply lost")
				lost = lost || reply
				if s.up {
					m.report(s, request, reply)
				}
			},
			"take": func(t *rapid.T) {
				units := rapid.Int64Range(1, burst).Draw(t, "units")
				before := max(m.history-m.now, 0)
				if got, want := m.request(t, s, units), before+units*tat.Ticks(time.Second) <= span; got != want && (got || !lost) {
					t.Fatalf("%d units on a bucket of %d with %v in it: got %v; want %v", units, burst, tat.Duration(before), got, want)
				}
			},
			"": func(t *rapid.T) {
				if !m.unreported() && m.tat < m.history && m.history > m.now {
					t.Fatalf("nothing is unreported, and Redis has %v of %v", tat.Duration(m.tat-m.now), tat.Duration(m.history-m.now))
				}
			},
		})
	})
}

// Several servers that lose Redis together admit at most a burst, or n requests, more than
// the limit, however often that happens. The same holds for a quota in each period.
func TestOutageOfServersIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, burst := rapid.IntRange(2, 4).Draw(t, "servers"), rapid.Int64Range(1, 8).Draw(t, "burst")
		limit, unit, step := gcra.Limit{Count: 1, Per: time.Second, Burst: burst}, tat.Ticks(time.Second), 4*time.Second
		if rapid.Bool().Draw(t, "quota") {
			limit, unit, step = gcra.Quota(burst, gcra.Hourly), 1, 20*time.Minute
		}

		m := newOutageModel(n, limit)
		largest := int64(1)
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				m.now += tat.Ticks(step) / 4000 * rapid.Int64Range(1, 4000).Draw(t, "of 4000")
			},
			"switch": func(*rapid.T) {
				for _, s := range m.servers {
					s.up = !s.up
				}
			},
			"report": func(t *rapid.T) {
				if s := m.servers[rapid.IntRange(0, n-1).Draw(t, "server")]; s.up {
					m.report(s, rapid.Bool().Draw(t, "request lost"), rapid.Bool().Draw(t, "reply lost"))
				}
			},
			"take": func(t *rapid.T) {
				units := rapid.Int64Range(1, burst).Draw(t, "units")
				largest = max(largest, units)
				m.request(t, m.servers[rapid.IntRange(0, n-1).Draw(t, "server")], units)
			},
			"": func(t *rapid.T) {
				bound := burst + max(burst, int64(n)*largest)
				if level := (m.history - m.base) / unit; level > bound {
					t.Fatalf("%v on %d servers: %d units were taken; want at most %d", limit, n, level, bound)
				}
			},
		})
	})
}
