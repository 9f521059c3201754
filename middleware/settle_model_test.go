package middleware_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// modelBucket is a policy's bucket, in plain units and milliseconds.
type modelBucket struct {
	middleware.Policy
	unit   int64 // of a rate: milliseconds until a unit is back; of a quota 1
	level  int64 // units in use, times unit
	period time.Time
}

// pass lets time pass: a rate refills, a quota is given back with the hour.
func (b *modelBucket) pass(d time.Duration, now time.Time) {
	if !b.Limit.IsQuota() {
		b.level = max(b.level-d.Milliseconds(), 0)
	} else if begins := beginOf(b.Limit.Calendar(), now); begins != b.period {
		b.level, b.period = 0, begins
	}
}

// beginOf is when the period of a calendar begins that a time is in: a day of Berlin, a
// month from the 15th, or an hour, which need no more than time.Date.
func beginOf(c gcra.Calendar, now time.Time) time.Time {
	y, m, d := now.UTC().Date()
	switch c {
	case gcra.Hourly:
		return now.Truncate(time.Hour).UTC()
	case gcra.Monthly.From(15):
		if d < 15 {
			m--
		}
		return time.Date(y, m, 15, 0, 0, 0, 0, time.UTC)
	}

	l, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	y, m, d = now.In(l).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, l).UTC()
}

func (b *modelBucket) admits(cost int64) bool {
	return cost == 0 || cost <= b.Limit.Capacity() && b.level+cost*b.unit <= b.Limit.Capacity()*b.unit+b.MaxDelay.Milliseconds()
}

// overdraw takes as many of the units as it may, and returns their number.
func (b *modelBucket) overdraw(units int64) int64 {
	most := (b.Limit.Capacity() + b.MaxDebt) * b.unit
	units = min(units, max(most-b.level, 0)/b.unit)
	b.level += units * b.unit
	return units
}

// modelRequest is a request and what its policies have charged; nothing where it is absent.
type modelRequest struct {
	decision *middleware.Decision
	costs    map[string]int64
	periods  map[string]time.Time
}

// A settleModel is a limiter, and the buckets and requests that it should have.
type settleModel struct {
	limiter  *middleware.Limiter
	store    gcra.Store
	clock    *doubles.Clock
	buckets  []*modelBucket
	requests []*modelRequest
}

// costs are costs, and the sizes of limits, delays and debts that fit them.
var costs = rapid.Int64Range(0, 12)

// Any sequence of requests, settlements, spending, refunds and time leaves the buckets that
// this model has, and Settle says what the model could not charge.
func TestSettleModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, clock := newStore()
		m := &settleModel{store: store, clock: clock}
		var policies []middleware.Policy
		for i := range rapid.IntRange(1, 4).Draw(t, "policies") {
			b := anyBucket(t, clock.Now())
			b.Name = strconv.Itoa(i)
			m.buckets, policies = append(m.buckets, b), append(policies, b.Policy)
		}
		var err error
		if m.limiter, err = middleware.New(middleware.Config{Store: store, Logger: unread}, policies...); err != nil {
			t.Fatal(err)
		}
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// anyBucket draws a policy and its bucket, which is full.
func anyBucket(t *rapid.T, now time.Time) *modelBucket {
	b := &modelBucket{unit: 1, Policy: middleware.Policy{
		Key:     key("k"),
		Cost:    func(r *http.Request) int64 { return r.ContentLength },
		MaxDebt: costs.Draw(t, "debt"),
		Shadow:  rapid.Bool().Draw(t, "shadow"),
	}}

	if rapid.Bool().Draw(t, "quota") {
		calendar := rapid.SampledFrom([]gcra.Calendar{gcra.Hourly, gcra.Monthly.From(15), gcra.Daily.In(time.FixedZone("Europe/Berlin", 0))}).Draw(t, "calendar")
		b.Limit = gcra.Quota(1+costs.Draw(t, "n"), calendar)
		b.period = beginOf(calendar, now)
		return b
	}

	seconds := rapid.Int64Range(1, 400).Draw(t, "seconds a unit")
	b.Limit = gcra.Limit{Count: 1, Per: time.Duration(seconds) * time.Second, Burst: 1 + costs.Draw(t, "burst")}
	b.MaxDelay = time.Duration(costs.Draw(t, "delay")*seconds) * time.Second / 2
	b.unit = seconds * 1000
	return b
}

// earlier draws one of the requests.
func (m *settleModel) earlier(t *rapid.T) *modelRequest {
	if len(m.requests) == 0 {
		t.Skip("no request yet")
	}
	return rapid.SampledFrom(m.requests).Draw(t, "request")
}

// some draws one or more of the policies.
func (m *settleModel) some(t *rapid.T) (names []string) {
	first := rapid.IntRange(0, len(m.buckets)-1).Draw(t, "policy")
	for i, b := range m.buckets {
		if i == first || rapid.Bool().Draw(t, "too") {
			names = append(names, b.Name)
		}
	}
	return names
}

// charge takes as many of the units as the bucket may give, and returns how many are missing.
func (r *modelRequest) charge(b *modelBucket, units int64) (missing int64) {
	taken := b.overdraw(units)
	r.costs[b.Name] += taken
	return units - taken
}

func (r *modelRequest) giveBack(b *modelBucket, units int64) {
	if !b.Limit.IsQuota() || r.periods[b.Name] == b.period {
		b.level = max(b.level-units*b.unit, 0)
	}
	r.costs[b.Name] -= units
}

func (m *settleModel) Decide(t *rapid.T) {
	r := get("/")
	r.ContentLength = costs.Draw(t, "cost")
	want := true
	for _, b := range m.buckets {
		want = want && (b.Shadow || b.admits(r.ContentLength))
	}

	q := &modelRequest{m.limiter.Decide(r), map[string]int64{}, map[string]time.Time{}}
	if q.decision.Allowed != want {
		t.Fatalf("cost %d: got allowed %v; want %v", r.ContentLength, q.decision.Allowed, want)
	}

	m.requests = append(m.requests, q)
	for _, b := range m.buckets {
		if want && b.admits(r.ContentLength) {
			b.level += r.ContentLength * b.unit
			q.costs[b.Name], q.periods[b.Name] = r.ContentLength, b.period
		}
	}
}

func (m *settleModel) Settle(t *rapid.T) {
	r, cost, names := m.earlier(t), 2*costs.Draw(t, "cost"), m.some(t)
	missing := map[string]int64{}

	for _, b := range m.buckets {
		was, ok := r.costs[b.Name]
		switch {
		case !ok || !slices.Contains(names, b.Name):
		case cost < was:
			r.giveBack(b, was-cost)
		default:
			if n := r.charge(b, cost-was); n > 0 && !b.Shadow {
				missing[b.Name] = n
			}
		}
	}

	err := r.decision.Settle(t.Context(), cost, names...)
	var short *middleware.SettleError
	if errors.As(err, &short) != (len(missing) > 0) || err != nil && short == nil {
		t.Fatalf("settle %d: got %v; want %v missing", cost, err, missing)
	}

	if short != nil && !maps.Equal(short.Missing, missing) {
		t.Fatalf("settle %d: got %v missing; want %v", cost, short.Missing, missing)
	}
}

func (m *settleModel) Spend(t *rapid.T) {
	r, n, names := m.earlier(t), costs.Draw(t, "units"), m.some(t)
	for _, b := range m.buckets {
		if _, ok := r.costs[b.Name]; ok && slices.Contains(names, b.Name) {
			r.charge(b, n)
		}
	}
	if err := r.decision.Spend(t.Context(), n, names...); err != nil {
		t.Fatal(err)
	}
}

func (m *settleModel) Refund(t *rapid.T) {
	r := m.earlier(t)
	var names []string // none is all
	if rapid.Bool().Draw(t, "some") {
		names = m.some(t)
	}
	for _, b := range m.buckets {
		if n, ok := r.costs[b.Name]; ok && (names == nil || slices.Contains(names, b.Name)) {
			r.giveBack(b, n)
			delete(r.costs, b.Name)
		}
	}
	if err := r.decision.Refund(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
}

func (m *settleModel) Pass(t *rapid.T) {
	d := time.Duration(rapid.Int64Range(0, 3_000_000).Draw(t, "ms")) * time.Millisecond
	if rapid.IntRange(0, 3).Draw(t, "long") == 0 {
		d *= 500 // up to 17 days
	}
	m.clock.Add(d)
	for _, b := range m.buckets {
		b.pass(d, m.clock.Now())
	}
}

// Check runs after each action.
func (m *settleModel) Check(t *rapid.T) {
	const room = 100
	for _, b := range m.buckets {
		r, err := gcra.Peek(t.Context(), m.store, gcra.Charge{Subject: "k", Policy: b.Name, Limit: larger(b.Limit, room)})
		want := ((b.Limit.Capacity()+room)*b.unit - b.level) / b.unit
		if err != nil || r.Remaining != want {
			t.Fatalf("%s, %v: got %d left, %v; want %d", b.Name, b.Limit, r.Remaining-room, err, want-room)
		}
	}
}
