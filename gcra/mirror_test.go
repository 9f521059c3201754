package gcra

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a Redis with one clock, whose replies take their time and may
// overtake each other, and a mirror that hears of them.
type world struct {
	now    int64
	tats   map[string]int64
	mirror *mirror
	flying []*flight
}

type flight struct {
	ride    *ride
	charges []Charge
	sent    int64
	done    bool // Redis has run it
}

func newWorld() *world {
	w := &world{tats: make(map[string]int64), mirror: newMirror(time.Second)}
	w.mirror.Now = func() time.Time { return time.Unix(epoch, 0).Add(time.Duration(w.now) * tick) }
	return w
}

func (w *world) ride(charges []Charge, refund bool) *ride {
	rd := &ride{refund: refund, done: make(chan struct{}, 1)}
	for i := range charges {
		c := &charges[i]
		d, err := c.demand(refund)
		if err != nil {
			panic(err)
		}
		rd.fares = append(rd.fares, fare{demand: d, key: c.Subject, hash: w.mirror.hash(c.Subject, c.Policy), shadow: c.Shadow})
	}
	return rd
}

// redis does with a ride what take.lua does.
func (w *world) redis(rd *ride) {
	lead := make(map[string]int64)
	rd.admitted = true
	for i := range rd.fares {
		f := &rd.fares[i]
		tat, ok := lead[f.key]
		if !ok {
			tat = w.tats[f.key]
		}
		f.ahead = f.clamp(tat, w.now)
		if f.admits(f.ahead) {
			if f.inc != 0 {
				lead[f.key] = w.now + f.take(f.ahead)
			}
		} else if !f.shadow {
			rd.admitted = false
		}
	}
	if rd.admitted {
		for key, tat := range lead {
			w.tats[key] = tat
		}
	}
}

// What the mirror refuses, Redis would refuse at that moment, whatever this
// process takes and refunds, however long its trips are and in whatever order
// they come back.
func TestMirrorNeverRefusesWhatRedisAdmits(t *testing.T) {
	limits := []Limit{PerSecond(10), PerSecond(2).WithBurst(4), PerMinute(20), {Count: 3, Per: 700 * time.Millisecond, Burst: 1}}
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += rapid.Int64Range(0, int64(300*time.Millisecond/tick)).Draw(t, "pause")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1: // a caller comes
				var charges []Charge
				for i := range rapid.IntRange(1, 3).Draw(t, "charges") {
					p := rapid.IntRange(0, len(limits)-1).Draw(t, "policy")
					charges = append(charges, Charge{
						Subject:  fmt.Sprint("key", rapid.IntRange(0, 1).Draw(t, "subject"), p),
						Policy:   "p",
						Limit:    limits[p],
						Cost:     rapid.Int64Range(0, 4).Draw(t, "cost"),
						MaxDelay: time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * 400 * time.Millisecond,
						Shadow:   i > 0 && rapid.Bool().Draw(t, "shadow"),
					})
				}
				refund := rapid.IntRange(0, 3).Draw(t, "refund") == 0
				rd := w.ride(charges, refund)
				if w.mirror.refuse(rd, charges, w.now) {
					refused++
					truth := w.ride(charges, false)
					w.redis(truth)
					if truth.admitted {
						t.Fatalf("the mirror refused %+v; Redis would have admitted", charges)
					}
					continue
				}
				w.mirror.depart(rd)
				w.flying = append(w.flying, &flight{ride: rd, charges: charges, sent: w.now})
			case 2, 3: // a trip reaches Redis
				for _, f := range w.flying {
					if !f.done && rapid.Bool().Draw(t, "arrives") {
						w.redis(f.ride)
						f.done = true
					}
				}
			default: // replies come back, some of them lost
				var rest []*flight
				for _, f := range w.flying {
					if !rapid.Bool().Draw(t, "returns") {
						rest = append(rest, f)
						continue
					}
					if !f.done || rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
						f.ride.err = context.DeadlineExceeded
					}
					w.mirror.learn(f.ride, f.sent)
				}
				w.flying = rest
			}
		}
	})
	if refused == 0 {
		t.Error("the mirror never refused anything: the property was not tested")
	}
}

// RetryAfter comes from before the trip on the side of the decision and from
// after it on the side of the client, so that whoever obeys it passes.
func TestMirrorRetryAfterIsNotTooShort(t *testing.T) {
	w := newWorld()
	c := []Charge{{Subject: "k", Policy: "p", Limit: PerHour(1), Cost: 1}}
	take := w.ride(c, false)
	sent := w.now
	w.now += ticksIn(20 * time.Millisecond)
	w.redis(take)
	w.now += ticksIn(5 * time.Millisecond)
	w.mirror.learn(take, sent)
	if !w.mirror.refuse(w.ride(c, false), c, w.now) {
		t.Fatal("the mirror does not refuse what it has seen taken")
	}
	truth := time.Hour - 5*time.Millisecond
	if got := c[0].Result.RetryAfter; got < truth || got > truth+21*time.Millisecond {
		t.Errorf("got retry after %v; want %v, or later by the trip of 25ms at most", got, truth)
	}
}

// A refund by another process is noticed after DenialTTL at the latest.
func TestDenialTTLgetsAfterDenialTTL(t *testing.T) {
	w := newWorld()
	c := []Charge{{Subject: "k", Policy: "p", Limit: PerHour(1), Cost: 1}}
	for range 2 {
		rd := w.ride(c, false)
		w.redis(rd)
		w.mirror.learn(rd, w.now)
	}
	delete(w.tats, "k") // another process resets the key
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {900 * time.Millisecond, true}, {1100 * time.Millisecond, false}} {
		w.now = ticksIn(step.after)
		if got := w.mirror.refuse(w.ride(c, false), c, w.now); got != step.want {
			t.Errorf("%v after the last answer the mirror refuses: %v; want %v", step.after, got, step.want)
		}
	}
}

// An answer that overtakes a refund which Redis ran after it tells of a bucket
// that is no more.
func TestMirrorIgnoresAnswersFromBeforeARefund(t *testing.T) {
	w := newWorld()
	c := []Charge{{Subject: "k", Policy: "p", Limit: PerHour(1), Cost: 1}}
	take, sent := w.ride(c, false), w.now
	w.redis(take) // its answer takes its time

	w.now++
	refund := w.ride(c, true)
	w.mirror.depart(refund)
	w.redis(refund)
	w.now++
	w.mirror.learn(refund, w.now-1)

	w.now++
	w.mirror.learn(take, sent)
	if w.mirror.refuse(w.ride(c, false), c, w.now) {
		t.Error("the mirror refuses what was refunded")
	}
}

// A refund by this process opens the bucket at once.
func TestMirrorFollowsOwnRefund(t *testing.T) {
	w := newWorld()
	c := []Charge{{Subject: "k", Policy: "p", Limit: PerHour(1), Cost: 1}}
	take := w.ride(c, false)
	w.redis(take)
	w.mirror.learn(take, w.now)
	if !w.mirror.refuse(w.ride(c, false), c, w.now) {
		t.Fatal("the mirror does not refuse what it has seen taken")
	}
	for _, lost := range []bool{false, true} {
		w.now++
		refund := w.ride(c, true)
		w.mirror.depart(refund)
		w.redis(refund)
		if lost {
			refund.err = context.DeadlineExceeded
		}
		w.mirror.learn(refund, w.now)
		if w.mirror.refuse(w.ride(c, false), c, w.now) {
			t.Errorf("the mirror refuses after a refund (its reply lost: %v)", lost)
		}
	}
}

// What is taken in an outage, on the mirror, is not what Redis has said: when it
// is back it is asked.
func TestMirrorDoesNotBelieveItself(t *testing.T) {
	w := newWorld()
	charges := []Charge{{Subject: "s", Policy: "p", Limit: PerHour(10), Cost: 1}}
	rd := w.ride(charges, false)
	w.redis(rd)
	w.mirror.learn(rd, w.mirror.now())
	for range 20 {
		if _, err := w.mirror.Take(t.Context(), charges); err != nil {
			t.Fatal(err)
		}
	}
	if charges[0].Result.Allowed {
		t.Fatal("the mirror admits 20 of 10")
	}
	if again := w.ride(charges, false); w.mirror.refuse(again, charges, w.mirror.now()) {
		t.Error("refused by what was taken in an outage; want Redis asked")
	}
}
