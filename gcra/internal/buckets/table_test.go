//go:build !interleave

package buckets

import (
	"os/exec"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// A table is a Go map of the entries that have not expired, and may keep expired ones.
// While others are added and dropped, and the table grows, no entry is lost or found twice.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tab table
		tab.init(rapid.IntRange(1, 40).Draw(t, "limit"), false)
		want := make(map[uint64]int64) // also expired entries
		now := int64(0)
		live := func() (n int) {
			for _, tat := range want {
				if tat >= now {
					n++
				}
			}
			return n
		}

		// Few first slots, some at the end of the array: probe sequences overlap and
		// wrap around.
		keys := rapid.Custom(func(t *rapid.T) uint64 {
			first := rapid.SampledFrom([]uint64{0, 1, 2, 5, 0xfffffe, 0xffffff}).Draw(t, "first slot")
			return rapid.Uint64Range(1, 6).Draw(t, "hash")<<32 | first
		})

		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				h := keys.Draw(t, "hash")
				before, ok := tab.add(h, now)
				if !ok {
					if n := live(); n < tab.limit && len(tab.slots()) <= 32 {
						t.Fatalf("no slot for %x beside %d live entries of %d", h, n, tab.limit)
					}
					if tat, ok := want[h]; ok && tat > now {
						t.Fatalf("the entry of %x is lost", h)
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
			"wait": func(t *rapid.T) { now += rapid.OneOf(rapid.Int64Range(0, 30), rapid.Just(keep)).Draw(t, "time") },
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
						t.Fatalf("slot %d: %x is there twice or was never added", i, h)
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

// A full table finds all expired entries, a few slots in each call.
func TestTableReclaims(t *testing.T) {
	var tab table
	tab.init(1000, false)
	for h := range uint64(1000) {
		if _, ok := tab.add(h+2, 0); !ok {
			t.Fatalf("no slot for key %d of 1000", h)
		}
		tab.set(h+2, 1+int64(h%2)*1000, 0) // every other one expires at 1
	}

	if _, ok := tab.add(5000, 0); ok {
		t.Fatal("got a slot in a table full of live entries")
	}

	tries := 0
	for i := range uint64(500) {
		h := 1_000_000 + i*7919
		for {
			if _, ok := tab.add(h, 2); ok {
				break
			}
			if tries++; tries > 1000 {
				t.Fatalf("no slot for a new key after %d tries", tries)
			}
		}
		tab.set(h, 1000, 0)
	}

	if _, ok := tab.add(999_999_999, 2); ok {
		t.Error("got more slots than entries have expired")
	}
	for h := uint64(1); h < 1000; h += 2 {
		if got := tab.find(h + 2); got == nil || got.tat.Load() != 1001 {
			t.Fatalf("a live entry: got %v; want 1001", got)
		}
	}
}

// While a table grows, charges without a lock may revive expired entries. It has room
// for all entries that move.
func TestTableGrowsDuringCharges(t *testing.T) {
	const keys = 3000
	key := func(i uint64) uint64 { return i*0x9e3779b97f4a7c15 | 2 }
	for round := range 100 {
		var tab table
		tab.init(1<<20, false)
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
			t.Fatalf("round %d: grow has not returned", round)
		}
		charges.Wait()
		if 4*tab.filled > 3*len(tab.slots()) {
			t.Fatalf("round %d: %d of %d slots filled; want at most three quarters", round, tab.filled, len(tab.slots()))
		}
	}
}

// TestInterleavings runs the test of this name in a build of its own, where a scheduler
// decides at each atomic operation which goroutine continues. It takes the same course each time, so
// a result that go test has kept will do.
func TestInterleavings(t *testing.T) {
	race.Skip(t)

	out, err := exec.Command("go", "test", "-tags", "interleave", "-v", "-run", "^TestInterleavings$", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
