// Package outage has the arithmetic of what a server grants alone while Redis does not answer: how much of that is
// unreported, that is neither charged in Redis nor drained. It calls nothing, has no goroutine, and its clock is an
// argument.
package outage

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
)

// Grants are what this server has granted alone and Redis does not know, by bucket. The zero value has none.
type Grants struct {
	n  atomic.Int64 // len(of), to be read without the lock
	mu sync.Mutex
	of map[uint64]*bucket

	closed                  bool
	granted, reported, lost float64 // units; a report may have a part of one
}

// Units count what was granted alone.
type Units struct {
	Granted  int64
	Reported int64 // of these, charged in Redis later
	Lost     int64 // of these, never to be charged: there were too many buckets, or the store was closed
}

// A Report is what is to be charged in Redis on one bucket. It is repeated under its ID until a reply comes.
type Report struct {
	Hash                   uint64
	Key, ID                string
	Amount                 int64 // moves the TAT ahead, but no further ahead of now than Top
	Top                    int64 // a TAT beyond it makes the report impossible
	Ends, Begins, Previous int64 // of a quota: when its period ends, and when that and the one before began
}

// Max bounds the buckets. One takes about 300 bytes with its key.
const Max = 1 << 16

// Add records a charge that one of n servers has granted alone, on a bucket whose TAT is known or, if that is later, now. The
// charge has the clamp of its limit, also if it is late. It is full, and keeps no charge of another bucket, at [Max] buckets.
func (g *Grants) Add(c *buckets.Charge, key func() string, now, known, n int64) (full bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	units := float64(c.Inc / c.Emission)
	g.granted += units

	b := g.of[c.Hash]
	if b != nil && b.charge.Period != c.Period {
		g.drop(c.Hash) // its period is over
		b = nil
	}

	if b == nil {
		if full = len(g.of) >= Max; full || g.closed {
			g.lost += units
			return full
		}
		if g.of == nil {
			g.of = make(map[uint64]*bucket)
		}
		b = &bucket{key: key(), n: n, known: known}
		g.of[c.Hash] = b
		g.n.Add(1)
	}

	b.drain(now) // at the share of the rate that it had
	b.grant(c, now, known, n)
	return false
}

func (g *Grants) drop(hash uint64) {
	delete(g.of, hash)
	g.n.Add(-1)
}

// Any reports whether something may be unreported.
func (g *Grants) Any() bool { return g.n.Load() > 0 }

// with calls f with a bucket as it is now, if something of it is unreported.
func (g *Grants) with(hash uint64, now int64, f func(b *bucket)) {
	if !g.Any() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.of[hash]; b != nil {
		b.drain(now)
		f(b)
	}
}

// Ahead is how far ahead of base the TAT of a bucket is at least with what is unreported; 0 if nothing is.
func (g *Grants) Ahead(c *buckets.Charge, base, now int64) (ahead int64) {
	g.with(c.Hash, now, func(b *bucket) {
		if b.charge.Period != c.Period {
			return
		}
		if c.Lowers() { // others, such as a peek without the MaxDelay of the limit, change nothing
			b.follow(c, now)
		}
		ahead = max(b.known-base, 0) + b.level
	})
	return ahead
}

// Learn records the TAT of an answer, and returns the whole limit's TAT with what is unreported, if anything is. The TAT of
// a server's share is no earlier.
func (g *Grants) Learn(hash uint64, known, now int64) (at int64, unreported bool) {
	g.with(hash, now, func(b *bucket) {
		b.learn(known, now)
		at, unreported = b.known+b.level, true
	})
	return at, unreported
}

// Forget drops what was learned about a bucket, which is refunded, and returns the local TAT that follows from what is
// unreported alone. It is the TAT of this server's share, which takes n times as long to drain; 0 for a quota.
func (g *Grants) Forget(hash uint64, now int64) (at int64) {
	g.with(hash, now, func(b *bucket) {
		if b.charge.Periods == nil {
			b.known, at = now, now+b.n*b.level
		}
	})
	return at
}

// Refund takes ticks from what is unreported, and returns how many were not.
func (g *Grants) Refund(c *buckets.Charge, ticks, now int64) (rest int64) {
	rest = ticks
	g.with(c.Hash, now, func(b *bucket) {
		if c.Refunds == 0 || c.Refunds == b.charge.Period {
			rest -= b.refund(ticks)
			if ticks > c.Top { // a reset
				g.drop(c.Hash)
			}
		}
	})
	return rest
}

// Reports returns reports of the buckets whose time has come, a number of them at most, and drops those that have ended.
func (g *Grants) Reports(now int64, most int) (list []Report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for hash, b := range g.of { // from another place each time, so that all have their turn
		b.drain(now)
		if b.level == 0 {
			g.drop(hash)
		} else if now >= b.next {
			list = append(list, b.report(hash))
		}
		if len(list) == most {
			break
		}
	}
	return list
}

// Record records the reply to a report: how much was charged, and the TAT afterwards.
func (g *Grants) Record(r *Report, charged, known, now int64) {
	g.with(r.Hash, now, func(b *bucket) {
		if b.id != r.ID {
			return
		}
		g.reported += b.units(charged)
		b.record(charged, known, now)
		if b.level == 0 {
			g.drop(r.Hash)
		}
	})
}

// Drop drops a bucket whose report is impossible, as report.lua says.
func (g *Grants) Drop(r *Report, now int64) {
	g.with(r.Hash, now, func(b *bucket) {
		if b.id == r.ID {
			g.drop(r.Hash)
		}
	})
}

// Units returns the counts.
func (g *Grants) Units() Units {
	g.mu.Lock()
	defer g.mu.Unlock()
	reported := min(g.reported, g.granted) // T may have changed
	lost := min(g.lost, g.granted-reported)
	return Units{int64(g.granted), int64(math.Round(reported)), int64(math.Round(lost))}
}

// Close drops all buckets, for good. What is unreported by now is lost.
func (g *Grants) Close(now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.of {
		b.drain(now)
		g.lost += b.units(b.level)
	}
	g.closed, g.of = true, nil
	g.n.Store(0)
}
