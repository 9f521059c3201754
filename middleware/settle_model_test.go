package middleware_test

import (
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
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
	l, err := time.LoadLocation(c.Location)
	if err != nil {
		panic(err)
	}
	now = now.In(l)
	y, m, d := now.Date()
	switch c.Unit {
	case "day":
		return time.Date(y, m, d, 0, 0, 0, 0, l).UTC()
	case "month":
		if d < c.Anchor {
			m--
		}
		return time.Date(y, m, c.Anchor, 0, 0, 0, 0, l).UTC()
	}
	return now.Truncate(time.Hour).UTC()
}

func (b *modelBucket) admits(cost int64) bool {
	return cost == 0 || cost <= b.Limit.Capacity() && b.level+cost*b.unit <= b.Limit.Capacity()*b.unit+b.MaxDelay.Milliseconds()
}

// overdraw takes what it may of so many units, and returns how many.
func (b *modelBucket) overdraw(units int64) int64 {
	most := (b.Limit.Capacity() + b.MaxDebt) * b.unit
	units = min(units, max(most-b.level, 0)/b.unit)
	b.level += units * b.unit
	return units
}

// modelRequest is a request and what its policies have charged; nothing where it is absent.
type modelRequest struct {
	decision middleware.Decision
	costs    map[string]int64
	periods  map[string]time.Time
}

// Any sequence of requests, settlements, spending, refunds and time leaves the buckets that
// this model has, and Settle says what the model could not charge.
func TestSettleModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store, clock := newStore()
		units := rapid.Int64Range(0, 12)
		cost := func(r *http.Request) int { n, _ := strconv.Atoi(r.Header.Get("Cost")); return n }
		var policies []middleware.Policy
		var buckets []*modelBucket
		for i := range rapid.IntRange(1, 4).Draw(t, "policies") {
			p := middleware.Policy{Name: strconv.Itoa(i), Key: key("k"), Cost: cost, MaxDebt: units.Draw(t, "debt"), Shadow: rapid.Bool().Draw(t, "shadow")}
			b := &modelBucket{unit: 1}
			if rapid.Bool().Draw(t, "quota") {
				calendar := rapid.SampledFrom([]gcra.Calendar{gcra.Hourly, gcra.Monthly.From(15), {Unit: "day", Location: "Europe/Berlin"}}).Draw(t, "calendar")
				p.Limit = gcra.Quota(1+units.Draw(t, "n"), calendar)
				b.period = beginOf(calendar, clock.now())
			} else {
				seconds := rapid.Int64Range(1, 400).Draw(t, "seconds a unit")
				p.Limit = gcra.Limit{Count: 1, Per: time.Duration(seconds) * time.Second, Burst: 1 + units.Draw(t, "burst")}
				p.MaxDelay = time.Duration(units.Draw(t, "delay")*seconds) * time.Second / 2
				b.unit = seconds * 1000
			}
			b.Policy = p
			policies, buckets = append(policies, p), append(buckets, b)
		}
		l, err := middleware.New(middleware.Config{Store: store, Logger: unread}, policies...)
		if err != nil {
			t.Fatal(err)
		}
		var requests []*modelRequest
		any := func(t *rapid.T) *modelRequest {
			if len(requests) == 0 {
				t.Skip("no request yet")
			}
			return rapid.SampledFrom(requests).Draw(t, "request")
		}
		charge := func(r *modelRequest, b *modelBucket, units int64) (missing int64) {
			taken := b.overdraw(units)
			r.costs[b.Name] += taken
			return units - taken
		}
		giveBack := func(r *modelRequest, b *modelBucket, units int64) {
			if !b.Limit.IsQuota() || r.periods[b.Name] == b.period {
				b.level = max(b.level-units*b.unit, 0)
			}
			r.costs[b.Name] -= units
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				cost := units.Draw(t, "cost")
				want := true
				for _, b := range buckets {
					want = want && (b.Shadow || b.admits(cost))
				}
				r := get("/")
				r.Header.Set("Cost", strconv.FormatInt(cost, 10))
				q := &modelRequest{l.Decide(r), map[string]int64{}, map[string]time.Time{}}
				if q.decision.Allowed != want {
					t.Fatalf("cost %d: got allowed %v; want %v", cost, q.decision.Allowed, want)
				}
				requests = append(requests, q)
				for _, b := range buckets {
					if want && b.admits(cost) {
						b.level += cost * b.unit
						q.costs[b.Name], q.periods[b.Name] = cost, b.period
					}
				}
			},
			"settle": func(t *rapid.T) {
				r, cost := any(t), 2*units.Draw(t, "cost")
				missing := map[string]int64{}
				for _, b := range buckets {
					was, ok := r.costs[b.Name]
					switch {
					case !ok:
					case cost < was:
						giveBack(r, b, was-cost)
					default:
						if n := charge(r, b, cost-was); n > 0 && !b.Shadow {
							missing[b.Name] = n
						}
					}
				}
				err := r.decision.Settle(t.Context(), cost)
				var short *middleware.SettleError
				if errors.As(err, &short) != (len(missing) > 0) || err != nil && short == nil {
					t.Fatalf("settle %d: got %v; want %v missing", cost, err, missing)
				}
				for name, n := range missing {
					if short.Missing[name] != n || len(short.Missing) != len(missing) {
						t.Fatalf("settle %d: got %v; want %v missing", cost, short.Missing, missing)
					}
				}
			},
			"spend": func(t *rapid.T) {
				r, n := any(t), units.Draw(t, "units")
				for _, b := range buckets {
					if _, ok := r.costs[b.Name]; ok && !b.Shadow {
						charge(r, b, n)
					}
				}
				if err := r.decision.Spend(t.Context(), n); err != nil {
					t.Fatal(err)
				}
			},
			"refund": func(t *rapid.T) {
				r := any(t)
				for _, b := range buckets {
					if n, ok := r.costs[b.Name]; ok {
						giveBack(r, b, n)
					}
				}
				clear(r.costs)
				if err := r.decision.Refund(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			"time": func(t *rapid.T) {
				d := time.Duration(rapid.Int64Range(0, 3_000_000).Draw(t, "ms")) * time.Millisecond
				if rapid.IntRange(0, 3).Draw(t, "long") == 0 {
					d *= 500 // up to 17 days
				}
				clock.add(d)
				for _, b := range buckets {
					b.pass(d, clock.now())
				}
			},
			"": func(t *rapid.T) {
				for _, b := range buckets {
					const room = 100
					r, err := gcra.Take(t.Context(), store, gcra.Charge{Subject: "k", Policy: b.Name, Limit: larger(b.Limit, room)})
					want := ((b.Limit.Capacity()+room)*b.unit - b.level) / b.unit
					if err != nil || r.Remaining != want {
						t.Fatalf("%s, %v: got %d left, %v; want %d", b.Name, b.Limit, r.Remaining-room, err, want-room)
					}
				}
			},
		})
	})
}
