package outage

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// queue is a bucket tick by tick: each that was granted, is not reported and has not drained stands in it, in order.
type queue struct {
	ticks []bool // whether each is being reported
	n     int64
	now   int64
	from  int64
	known int64
	id    string
	next  int64
	top   int64
}

// wait lets a time pass, tick by tick.
func (q *queue) wait(ticks int64) {
	for range ticks {
		q.now++
		q.drain()
	}
}

// drain takes one tick from the front for every n.
func (q *queue) drain() {
	for len(q.ticks) > 0 && q.now-q.from >= q.n {
		q.ticks = q.ticks[1:]
		q.from += q.n
	}
}

func (q *queue) grant(ticks, begins, n int64) {
	q.n = n
	if len(q.ticks) == 0 {
		if q.from = begins; n > 1 {
			q.from += tat.Ticks(patience)
		}
	}
	q.ticks = append(q.ticks, make([]bool, ticks)...)
	q.drain()
}

// limit applies the clamp of a limit.
func (q *queue) limit(top int64) {
	if top != q.top {
		q.ticks = q.ticks[:min(len(q.ticks), int(top))]
		q.next, q.top = 0, top
		latest := q.now + top
		q.known = min(q.known, latest)
		if q.n > 1 {
			latest += tat.Ticks(patience)
		}
		q.from = min(q.from, latest)
	}
}

// refund takes ticks from the end that are not being reported.
func (q *queue) refund(ticks int64) {
	for last := len(q.ticks) - 1; ticks > 0 && last >= 0 && !q.ticks[last]; last-- {
		q.ticks = q.ticks[:last]
		ticks--
	}
}

func (q *queue) learn(known int64) {
	q.known = min(known, q.now+q.top)
	q.from = max(q.from, q.known)
}

// report begins a report of all, or repeats one, and returns how much it has.
func (q *queue) report(id string) (amount int64) {
	for i := range q.ticks {
		q.ticks[i] = q.ticks[i] || q.id == ""
		if q.ticks[i] {
			amount++
		}
	}
	if q.id == "" {
		q.id = id
	}
	return amount
}

// record takes what was charged from the front. What was not is to be reported again.
func (q *queue) record(charged, known int64) {
	for range charged {
		if len(q.ticks) > 0 && q.ticks[0] {
			q.ticks = q.ticks[1:]
		}
	}
	if len(q.ticks) > 0 && q.ticks[0] {
		q.next = q.now + 10/4
	}
	clear(q.ticks)
	q.id = ""

	q.learn(known)
	if q.n > 1 {
		q.from = max(q.from, q.now+tat.Ticks(patience))
	}
}

func (q *queue) ended() bool { return len(q.ticks) == 0 }

// charge is one of some units of 10 ticks, on a bucket that holds top.
func charge(units, top int64) *buckets.Charge {
	return &buckets.Charge{Params: tat.Params{Emission: 10, Capacity: top, Top: top, Room: top, Inc: 10 * units}, Hash: 1}
}

// quota is a charge on a quota for each hour, in the period of a time.
func quota(units, now int64) *buckets.Charge {
	c := charge(units, 1000)
	c.Periods, _ = tat.Calendar("hour").Periods()
	c.SetPeriod(now, false)
	return c
}

func name() string { return "key" }

// The arithmetic is a queue's of ticks, whatever the order of grants, refunds, reports, lost replies and answers.
func TestGrantsAreAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, q, top := new(Grants), &queue{now: 1000}, int64(1000)
		var replies []Report // that may still come
		few := rapid.Int64Range(0, 40)

		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "long") == 0 {
					q.now = max(q.now, q.from-20) // nothing drains before
				}
				q.wait(few.Draw(t, "ticks"))
			},
			"grant": func(t *rapid.T) {
				units, n := rapid.Int64Range(1, 5).Draw(t, "units"), rapid.Int64Range(1, 3).Draw(t, "servers")
				begins := q.now + few.Draw(t, "begins in")
				if !g.Any() {
					*q = queue{now: q.now, known: begins}
				}
				g.Add(charge(units, top), name, q.now, begins, n)
				q.limit(top)
				q.grant(10*units, begins, n)
			},
			"refund": func(t *rapid.T) {
				ticks, want := few.Draw(t, "ticks"), int64(0)
				if want = ticks; g.Any() {
					want = max(ticks-int64(len(q.ticks)), 0)
					q.refund(ticks)
				}

				if rest := g.Refund(charge(1, top), ticks, q.now); rest != want {
					t.Fatalf("a refund of %d: got %d that were not unreported; want %d", ticks, rest, want)
				}
			},
			"answer": func(t *rapid.T) {
				known := q.now + rapid.Int64Range(-40, 90).Draw(t, "TAT")
				if at, unreported := g.Learn(1, known, q.now); unreported {
					q.learn(known)
					if want := q.known + int64(len(q.ticks)); at != want {
						t.Fatalf("got a TAT of %d; want %d", at, want)
					}
				}
			},
			"limit": func(*rapid.T) {
				top = 1060 - top
				g.Ahead(charge(1, top), q.now, q.now)
				q.limit(top)
			},
			"report": func(t *rapid.T) {
				due := g.Any() && !q.ended() && q.now >= q.next
				list := g.Reports(q.now, 1)
				if len(list) > 0 != due {
					t.Fatalf("got %d reports; want one: %v", len(list), due)
				}
				if !due {
					return
				}
				r := list[0]
				if q.id != "" && r.ID != q.id {
					t.Fatalf("got a report with another id before a reply")
				}

				if want := q.report(r.ID); r.Amount != want || r.Top != top {
					t.Fatalf("got %+v; want an amount of %d, and a top of %d", r, want, top)
				}
				replies = append(replies, r)
			},
			"reply": func(t *rapid.T) {
				if len(replies) == 0 {
					return
				}
				r := rapid.SampledFrom(replies).Draw(t, "which")
				charged, known := rapid.Int64Range(0, r.Amount).Draw(t, "charged"), q.now+2*few.Draw(t, "ahead")
				had := g.Any()
				g.Record(&r, charged, known, q.now)
				if !had || r.ID != q.id {
					return // of a report that has had its reply
				}

				q.record(charged, known)
				if g.Any() == q.ended() {
					t.Fatalf("got an end: %v; want %v", !g.Any(), q.ended())
				}
			},
			"": func(*rapid.T) {
				want := int64(0)
				if g.Any() {
					want = max(q.known-q.now, 0) + int64(len(q.ticks))
				}
				if got := g.Ahead(charge(1, top), q.now, q.now); got != want {
					t.Fatalf("got a TAT that is %d ahead; want %d", got, want)
				}
			},
		})
	})
}

// A quota gives nothing back before its period ends. A grant in the next period begins anew.
func TestGrantsOfAQuota(t *testing.T) {
	g, now := new(Grants), int64(1000)
	c := quota(3, now)
	add := func() { g.Add(c, name, now, now, 2) }
	add()
	now += anHour - 2000

	if got := g.Ahead(c, now, now); got != 30 {
		t.Errorf("at the end of the period: got %d; want 30", got)
	}

	c = quota(3, now+2000)
	if got := g.Ahead(c, now, now); got != 0 {
		t.Errorf("in the next period: got %d; want 0", got)
	}
	add()
	if got := g.Ahead(c, now, now); got != 30 {
		t.Errorf("after a grant in the next period: got %d; want 30", got)
	}
}
