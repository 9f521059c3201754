//go:build !interleave

package buckets

import (
	"fmt"
	"math"
	"os/exec"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A table is a Go map of the entries that have not lapsed; of those that have it
// may keep any. No entry is lost or found twice when others come, go, take over
// slots and make the table grow.
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
		// Few first slots, some of them the last of the array: probe sequences
		// overlap and wrap around.
		keys := rapid.Custom(func(t *rapid.T) uint64 {
			home := rapid.SampledFrom([]uint64{0, 1, 2, 5, 0xfffffe, 0xffffff}).Draw(t, "home")
			return rapid.Uint64Range(1, 6).Draw(t, "hash")<<32 | home
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				h := keys.Draw(t, "hash")
				before, ok := tab.add(h, now)
				if !ok {
					if n := live(); n < tab.limit && len(tab.slots()) <= 32 {
						t.Fatalf("no room for %x beside %d live of %d", h, n, tab.limit)
					}
					if tat, ok := want[h]; ok && tat > now {
						t.Fatalf("%x has lost its entry", h)
					}
					return
				}
				if was, ok := want[h]; ok && was > now && before != was || !(ok && was > now) && before > now {
					t.Fatalf("at %d, add %x: got %d; want %d", now, h, before, was)
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
				for i := range tab.slots() {
					h := tab.slots()[i].hash.Load()
					if h != empty {
						filled++
					}
					if h < minHash {
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
				if 4*tab.filled > 3*len(tab.slots()) {
					t.Fatalf("%d of %d slots filled; want at most three quarters", tab.filled, len(tab.slots()))
				}
			},
		})
	})
}

// A full table finds lapsed entries wherever they are, a few looks at a time.
func TestTableReclaims(t *testing.T) {
	tab := table{limit: 1000}
	for h := range uint64(1000) {
		if _, ok := tab.add(h+2, 0); !ok {
			t.Fatalf("no room for key %d of 1000", h)
		}
		tab.set(h+2, 1+int64(h%2)*1000, 0) // every other one has lapsed after 1
	}
	if _, ok := tab.add(5000, 0); ok {
		t.Fatal("room was found in a table full of live entries")
	}
	tries := 0
	for i := range uint64(500) {
		h := 1_000_000 + i*7919
		for {
			if _, ok := tab.add(h, 2); ok {
				break
			}
			if tries++; tries > 1000 {
				t.Fatalf("no room for a new key after %d tries", tries)
			}
		}
		tab.set(h, 1000, 0)
	}
	if _, ok := tab.add(999_999_999, 2); ok {
		t.Error("got more room than entries had lapsed")
	}
	for h := uint64(1); h < 1000; h += 2 {
		if got := tab.find(h + 2); got == nil || got.tat.Load() != 1001 {
			t.Fatalf("a live entry: got %v; want 1001", got)
		}
	}
}

// A million keys in a set of 10,000 never take more memory than 10,000, and a
// table that is full allocates nothing more.
func TestSetIsBounded(t *testing.T) {
	const capacity = 10_000
	m := New(capacity, NewClock(nil), false)
	slots := func() (used, size int) {
		for i := range m.shards[:len(m.shards)-1] {
			used += m.shards[i].used
			size += len(m.shards[i].slots())
		}
		return used, size
	}
	full := 0
	for i := range 1_000_000 {
		take(t, m, fmt.Sprint(i), tat.Limit{Count: 1, Per: 24 * time.Hour})
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
	if m.overflow().used != 1 || len(m.overflow().slots()) > 8 {
		t.Errorf("the overflow has %d of %d slots used; want 1, for one policy", m.overflow().used, len(m.overflow().slots()))
	}
}

// Shards never hold more than the capacity together, and a small set is not
// divided into shards of which one would fill long before the others.
func TestCapacityIsKept(t *testing.T) {
	for _, capacity := range []int{-1, 0, 1, 2, 3, 1000, 1023, 2047, 2048, 100_000, 1 << 20, 1<<20 + 1, math.MaxInt32} {
		m := New(capacity, NewClock(nil), false)
		total, shards := 0, len(m.shards)-1 // without the overflow shard
		for i := range shards {
			total += m.shards[i].limit
		}
		want := capacity
		if capacity <= 0 {
			want = 1 << 20
		}
		if total > want || total < want-MaxShards || shards == 1 && total != want {
			t.Errorf("capacity %d: got room for %d in %d shards; want %d", capacity, total, shards, want)
		}
		for range 1000 {
			h := m.hash("a", "b")
			if i := h >> m.shift; i >= uint64(shards) {
				t.Fatalf("capacity %d: hash %x is in shard %d of %d", capacity, h, i, shards)
			}
		}
	}
}

// A table that grows while charges without a lock take from lapsed entries has
// room for all that move.
func TestTableGrowsBesideCharges(t *testing.T) {
	const keys = 3000
	key := func(i uint64) uint64 { return i*0x9e3779b97f4a7c15 | 2 }
	for round := range 100 {
		tab := table{limit: 1 << 20}
		for i := range uint64(keys) {
			tab.add(key(i), 0)
			tab.set(key(i), 5, 0)
		}
		begin := make(chan struct{})
		var charges sync.WaitGroup
		charges.Go(func() {
			<-begin
			for i := range uint64(keys) {
				if s := tab.find(key(i)); s != nil {
					if tat := s.tat.Load(); tat != locked {
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
		if 4*tab.filled > 3*len(tab.slots()) {
			t.Fatalf("round %d: %d of %d slots filled; want at most three quarters", round, tab.filled, len(tab.slots()))
		}
	}
}

// take makes a charge of one unit as gcra.Memory does.
func take(t testing.TB, s *Set, subject string, limit tat.Limit) (allowed bool) {
	t.Helper()
	var ops [1]Op
	if err := s.Prepare(&tat.Charge{Subject: subject, Policy: "p", Limit: limit, Cost: 1}, false, &ops[0]); err != nil {
		t.Fatal(err)
	}
	if s.TakeFast(&ops[0]) {
		return ops[0].Admits(ops[0].Ahead)
	}
	return s.Apply(ops[:])
}

// The interleavings of charges are explored in a build of their own, in which
// each atomic operation lets a scheduler choose who goes on.
func TestInterleavings(t *testing.T) {
	out, err := exec.Command("go", "test", "-tags", "interleave", "-count=1", "-v", "-run", "^TestInterleavings$", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
