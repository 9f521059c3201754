package replay

import (
	"context"
	"hash/maphash"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// player sends entries through a limiter, on their own clock, and counts its decisions.
type player struct {
	routes  *routes // from -route; nil without
	limiter *middleware.Limiter
	request *http.Request // the same for all entries
	entry   *entry        // the current one
	clock   int64         // microseconds since 1970

	seed         maphash.Seed
	subjectsLeft int // that the meters may still add
	tallies      []*tally
	byName       map[string]*tally
	timeline     timeline

	first            int64 // microseconds since 1970
	requests, denied int64
	late             int64         // entries earlier than the one before
	latest           time.Duration // the most that one was earlier
	err              error         // the first error of a decision

	plans         map[string]bool   // of all policies
	limiters      map[string]string // by policy, if the file has several
	notAddresses  unknowns          // client is not an address
	withoutPlan   unknowns          // no plan, at a policy with plans
	unlistedPlans unknowns          // plan that no policy lists
}

// The first lines of the timeline; the policies' lines follow.
const (
	lineRequests = iota
	lineDenied
	linePolicies
)

// tally counts the decisions of a policy.
type tally struct {
	policy         middleware.Policy
	line           int // of the timeline
	requests       int64
	denied         int64
	delayed        int64
	anonymous      int64
	deniedByOthers int64 // requests that another policy denied
	top            top
	meters         []*meter // one for each limit, in order of appearance
}

// newPlayer loads policies.
func newPlayer(policies string, f *funcs) (*player, error) {
	p := &player{seed: maphash.MakeSeed(), subjectsLeft: maxSubjects, byName: map[string]*tally{}}
	p.request = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}}).
		WithContext(entryContext{context.Background(), p})

	list, err := f.load(policies, p)
	if err != nil {
		return nil, err
	}

	p.limiter, err = middleware.New(middleware.Config{Store: gcra.NewMemory(gcra.MemoryConfig{Now: p.now}), Logger: slog.New(slog.DiscardHandler)}, list...)
	if err != nil {
		return nil, err
	}

	given := f.routes.count > 0
	if given {
		p.routes = &f.routes
	}

	for i, policy := range p.limiter.Policies() {
		t := &tally{policy: policy, line: linePolicies + i}
		p.tallies, p.byName[policy.Name] = append(p.tallies, t), t
		for _, route := range policy.Routes {
			if !given {
				_ = f.routes.add(route) // may be known already, or conflict with another
			}
		}
	}

	p.timeline.lines = make([][steps]int64, linePolicies+len(p.tallies))
	return p, nil
}

// entryContext is the context of the request. It has the current entry for key functions.
type entryContext struct {
	context.Context
	player *player
}

type entryKey struct{}

func (s entryContext) Value(key any) any {
	if key == (entryKey{}) {
		return s.player.entry
	}
	return s.Context.Value(key)
}

func entryIn(ctx context.Context) *entry { return ctx.Value(entryKey{}).(*entry) }

func (p *player) now() time.Time { return time.UnixMicro(p.clock) }

// playAll plays the sources, until they or the context end, and returns the statistics of
// what it has played.
func (p *player) playAll(ctx context.Context, sources []*source) (s logStats, stopped bool) {
	l := read(ctx, sources)
	for {
		b, ok := l.nextBatch(ctx)
		if !ok {
			return s, ctx.Err() != nil
		}
		for i := range b.entries {
			p.play(&b.entries[i])
		}
		s = b.stats
		l.release(b)
	}
}

// play decides an entry. The clock does not go back: an entry earlier than the one before
// counts at the time of that one.
func (p *player) play(e *entry) *middleware.Decision {
	switch {
	case p.requests == 0:
		p.first, p.clock = e.at, e.at
	case e.at < p.clock:
		p.late++
		p.latest = max(p.latest, time.Duration(p.clock-e.at)*time.Microsecond)
	}

	p.clock = max(p.clock, e.at)
	p.entry = e
	r := p.request
	r.Method, r.URL, r.Host, r.RemoteAddr = e.method, e.url, e.host, e.client
	if p.routes != nil {
		r.Pattern = p.routes.of(r)
	}

	d := p.limiter.Decide(r)
	p.count(d)
	return d
}

// count counts a decision.
func (p *player) count(d *middleware.Decision) {
	p.requests++
	p.timeline.count(lineRequests, p.clock)
	if !d.Allowed {
		p.denied++
		p.timeline.count(lineDenied, p.clock)
	}
	if p.err == nil {
		p.err = d.Err
	}

	denying := 0
	for i := range d.Results {
		if denies(&d.Results[i]) {
			denying++
		}
	}

	for i := range d.Results {
		result := &d.Results[i]
		t := p.byName[result.Policy]
		hash := maphash.String(p.seed, result.Subject)
		t.requests++
		if result.Subject == "" {
			t.anonymous++
		}

		if denying > 1 || denying == 1 && !denies(result) {
			t.deniedByOthers++
		}

		if result.Delay > 0 && d.Allowed {
			t.delayed++
		}
		if !result.Allowed {
			t.denied++
			t.top.add(result.Subject, hash)
			p.timeline.count(t.line, p.clock)
		}

		cost := int64(1)
		if t.policy.Cost != nil {
			cost = max(t.policy.Cost(p.request), 0)
		}
		t.meter(result.Limit, &p.subjectsLeft).add(result.Subject, hash, p.clock, cost, !result.Allowed)
	}
}

func denies(r *middleware.PolicyResult) bool { return !r.Allowed && !r.Shadow }

// meter returns the meter of a limit; a policy with plans has several.
func (t *tally) meter(l gcra.Limit, room *int) *meter {
	for _, m := range t.meters {
		if m.limit == l {
			return m
		}
	}
	m := newMeter(l, t.policy.MaxDelay, room)
	t.meters = append(t.meters, m)
	return m
}
