package gcra

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A table is a Go map of the entries that have not lapsed; of those that have
// it may have kept any. No entry is lost or found twice when others come, go,
// take places over and make the table grow.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := table{limit: rapid.IntRange(1, 40).Draw(t, "limit")}
		want := make(map[uint64]int64) // also those that have lapsed
		now := int64(0)
		live := func() (n int) {
			for _, tat := range want {
				if tat >= now {
					n++
				}
			}
			return n
		}
		// Few homes, some of them the last slots: ways run into each other and
		// around the end.
		keys := rapid.Custom(func(t *rapid.T) uint64 {
			home := rapid.SampledFrom([]uint64{0, 1, 2, 5, 0xfffffe, 0xffffff}).Draw(t, "home")
			return rapid.Uint64Range(1, 6).Draw(t, "hash")<<32 | home
		})
		t.Repeat(map[string]func(*rapid.T){
			"hold": func(t *rapid.T) {
				h := keys.Draw(t, "hash")
				before, ok := tab.hold(h, now)
				if !ok {
					if n := live(); n < tab.limit && len(tab.all()) <= 32 {
						t.Fatalf("no place for %x beside %d live of %d", h, n, tab.limit)
					}
					if tat, ok := want[h]; ok && tat > now {
						t.Fatalf("%x has lost its place", h)
					}
					return
				}
				if was, ok := want[h]; ok && was > now && before != was || !(ok && was > now) && before > now {
					t.Fatalf("at %d, hold of %x: got %d; want %d", now, h, before, was)
				}
				tat := now + rapid.Int64Range(1, 50).Draw(t, "tat")
				tab.set(h, tat, 0)
				want[h] = tat
			},
			"set": func(t *rapid.T) {
				h := keys.Draw(t, "hash")
				tat := now + rapid.Int64Range(-5, 50).Draw(t, "tat")
				if tab.find(h) != nil {
					want[h] = tat
				}
				tab.set(h, tat, 0)
			},
			"reclaim": func(t *rapid.T) {
				used := tab.used
				if tab.reclaim(now) != (tab.used == used-1) {
					t.Fatalf("used was %d, is %d", used, tab.used)
				}
				for h, tat := range want {
					if tat <= now && tab.find(h) == nil {
						delete(want, h)
					}
				}
			},
			"wait": func(t *rapid.T) { now += rapid.Int64Range(0, 30).Draw(t, "time") },
			"": func(t *rapid.T) {
				for h, tat := range want {
					got := tab.find(h)
					if got == nil && tat > now || got != nil && got.tat.Load() != tat {
						t.Fatalf("at %d, %x: got %v; want %d", now, h, got, tat)
					}
				}
				found := make(map[uint64]bool)
				filled := 0
				for i := range tab.all() {
					h := tab.all()[i].hash.Load()
					if h != empty {
						filled++
					}
					if h < hashes {
						continue
					}
					if _, ok := want[h]; !ok || found[h] {
						t.Fatalf("slot %d: %x is there twice or was never put", i, h)
					}
					found[h] = true
				}
				if tab.used != len(found) || tab.used > tab.limit || tab.filled != filled {
					t.Fatalf("used is %d of %d, filled %d; want %d entries in %d slots that are not empty", tab.used, tab.limit, tab.filled, len(found), filled)
				}
				if 4*tab.filled > 3*len(tab.all()) {
					t.Fatalf("%d of %d slots filled; want at most three quarters", tab.filled, len(tab.all()))
				}
			},
		})
	})
}

// A full table gives up places that have lapsed wherever they are, a few looks
// at a time.
func TestTableReclaims(t *testing.T) {
	tab := table{limit: 1000}
	for h := range uint64(1000) {
		if _, ok := tab.hold(h+2, 0); !ok {
			t.Fatalf("no place for key %d of 1000", h)
		}
		tab.set(h+2, 1+int64(h%2)*1000, 0) // every other one has lapsed after 1
	}
	if _, ok := tab.hold(5000, 0); ok {
		t.Fatal("a place was found in a table full of live entries")
	}
	tries := 0
	for i := range uint64(500) {
		h := 1_000_000 + i*7919
		for {
			if _, ok := tab.hold(h, 2); ok {
				break
			}
			if tries++; tries > 1000 {
				t.Fatalf("no place for a newcomer after %d tries", tries)
			}
		}
		tab.set(h, 1000, 0)
	}
	if _, ok := tab.hold(999_999_999, 2); ok {
		t.Error("got more places than had lapsed")
	}
	for h := uint64(1); h < 1000; h += 2 {
		if got := tab.find(h + 2); got == nil || got.tat.Load() != 1001 {
			t.Fatalf("a live entry: got %v; want 1001", got)
		}
	}
}

// A million keys on a table of 10,000 never take more than the memory of
// 10,000, and nothing of it is ever made again once the table is full.
func TestMemoryIsBounded(t *testing.T) {
	const capacity = 10_000
	m := &Memory{Capacity: capacity}
	limit := PerDay(1)
	slots := func() (used, size int) {
		for i := range m.shards {
			used += m.shards[i].used
			size += len(m.shards[i].all())
		}
		return used, size
	}
	full := 0
	for i := range 1_000_000 {
		if _, err := Take(t.Context(), m, Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: limit, Cost: 1}); err != nil {
			t.Fatal(err)
		}
		if i == 10*capacity {
			_, full = slots()
		}
	}
	used, size := slots()
	if used > capacity || used < capacity*9/10 {
		t.Errorf("got %d keys held; want at most and about %d", used, capacity)
	}
	if size > 4*capacity || size != full {
		t.Errorf("got %d slots, %d when it had just filled; want them equal and at most %d", size, full, 4*capacity)
	}
	if m.overflow.used != 1 || len(m.overflow.all()) > 8 {
		t.Errorf("the overflow has %d of %d slots used; want 1, for one policy", m.overflow.used, len(m.overflow.all()))
	}
}

// Shards never hold more than Capacity together, and a small table is not cut
// into shards that fill one before the other.
func TestMemoryCapacityIsKept(t *testing.T) {
	for _, capacity := range []int{-1, 0, 1, 2, 3, 1000, 1023, 2047, 2048, 100_000, 1 << 20, 1<<20 + 1, math.MaxInt32} {
		m := &Memory{Capacity: capacity}
		m.init()
		total := 0
		for i := range m.shards {
			total += m.shards[i].limit
		}
		want := capacity
		if capacity <= 0 {
			want = 1 << 20
		}
		if total > want || total < want-maxShards || len(m.shards) == 1 && total != want {
			t.Errorf("Capacity %d: got room for %d in %d shards; want %d", capacity, total, len(m.shards), want)
		}
		for range 1000 {
			h := m.hash("a", "b")
			if i := h >> m.shift; i >= uint64(len(m.shards)) {
				t.Fatalf("Capacity %d: hash %x is in shard %d of %d", capacity, h, i, len(m.shards))
			}
		}
	}
}

// A table that grows while charges without a lock bring lapsed entries back to
// life has room for all that move.
func TestTableGrowsBesideCharges(t *testing.T) {
	const keys = 3000
	key := func(i uint64) uint64 { return i*0x9e3779b97f4a7c15 | 2 }
	for round := range 100 {
		tab := table{limit: 1 << 20}
		for i := range uint64(keys) {
			tab.hold(key(i), 0)
			tab.set(key(i), 5, 0)
		}
		begin := make(chan struct{})
		var charges sync.WaitGroup
		charges.Go(func() {
			<-begin
			for i := range uint64(keys) {
				if s := tab.find(key(i)); s != nil {
					if tat := s.tat.Load(); tat != taken {
						s.tat.CompareAndSwap(tat, 1000)
					}
				}
			}
		})
		close(begin)
		grown := make(chan struct{})
		go func() {
			defer close(grown)
			tab.grow(10)
		}()
		select {
		case <-grown:
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: grow does not return", round)
		}
		charges.Wait()
		if 4*tab.filled > 3*len(tab.all()) {
			t.Fatalf("round %d: %d of %d slots filled; want at most three quarters", round, tab.filled, len(tab.all()))
		}
	}
}

// interrupted is a clock of which a reader is interrupted, once.
type interrupted struct {
	now  time.Time
	then func()
}

func (c *interrupted) read() time.Time {
	t := c.now
	if f := c.then; f != nil {
		c.then = nil
		f()
	}
	return t
}

// A call that has read the clock, and then stands still while others take, does
// not bring down what they have taken.
func TestMemoryStaleClock(t *testing.T) {
	charge := Charge{Subject: "k", Policy: "p", Limit: PerSecond(10), Cost: 1}
	other := charge
	other.Subject = "other"
	for name, call := range map[string]func(*Memory) error{
		"a group":  func(m *Memory) error { _, err := m.Take(context.Background(), []Charge{charge, other}); return err },
		"a refund": func(m *Memory) error { return m.Refund(context.Background(), []Charge{charge}) },
	} {
		c := &interrupted{now: time.Unix(1_800_000_000, 0)}
		m := &Memory{Now: c.read}
		all := func() (passed int) {
			for range 50 {
				if r, err := Take(t.Context(), m, charge); err != nil {
					t.Fatal(err)
				} else if r.Allowed {
					passed++
				}
			}
			return passed
		}
		all()
		c.now = c.now.Add(10 * time.Second)
		passed := 0
		c.then = func() {
			c.now = c.now.Add(time.Second)
			passed += all()
		}
		if err := call(m); err != nil {
			t.Fatal(err)
		}
		if passed += all(); passed > 11 { // a refund gives one back
			t.Errorf("%s: %d passed at one moment; want 10, and one more after a refund", name, passed)
		}
	}
}
