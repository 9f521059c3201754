package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const key1 = "user:1"

// clients ask again 5 to 15 ms after each answer, for a time. They hold a slot for 50 ms.
func (w *world) clients(t *testing.T, most int, lasts time.Duration, each ...int) {
	var wg sync.WaitGroup
	begin := time.Now()
	for server, n := range each {
		for i := range n {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(server), uint64(i)))
				for time.Since(begin) < lasts {
					_ = w.job(t.Context(), server, key1, 1, most, briefly, 50*time.Millisecond)
					time.Sleep(5*time.Millisecond + time.Duration(random.Int64N(int64(10*time.Millisecond))))
				}
			})
		}
	}
	wg.Wait()
}

// Servers share the slots of a key: with equal load no server gets more than twice as much as another, and one with a
// tenth of the load is served. The slots are in use nearly all the time.
func TestServersShare(t *testing.T) {
	const near, far = 200 * time.Microsecond, 5 * time.Millisecond
	for _, tt := range []struct {
		name  string
		each  []int // clients of each server
		ways  []time.Duration
		ratio int // most/least
	}{
		{"equal, near", []int{21, 21, 21}, []time.Duration{near, near, near}, 2},
		{"equal, far", []int{21, 21, 21}, []time.Duration{far, far, far}, 2},
		{"10:1, near", []int{50, 5}, []time.Duration{near, near}, 10},
		{"10:1, far", []int{50, 5}, []time.Duration{far, far}, 10},
		{"10:1, the small one far", []int{50, 5}, []time.Duration{near, far}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, len(tt.each), 1, 0, 0)
				for i := range w.links {
					w.links[i].set(tt.ways[i], 0)
				}
				const lasts = 10 * time.Second
				w.clients(t, 3, lasts, tt.each...)

				sum := 0
				for _, n := range w.served {
					sum += n
				}
				t.Logf("served %v, denied %v, %.2f slots in use, %d calls a second",
					w.served, w.denied, float64(sum)*0.050/lasts.Seconds(), w.redis.runs.Load()/int64(lasts.Seconds()))
				if slices.Max(w.served) > tt.ratio*slices.Min(w.served) {
					t.Errorf("served %v; want at most %d to 1", w.served, tt.ratio)
				}
				if w.most[key1] > 3 {
					t.Errorf("%d ran at once; want at most 3", w.most[key1])
				}
			})
		})
	}
}

// A client with a Max of 1, whose last response is complete, is not denied on the next server: with the server that
// releases 5 ms away, with a call of it in flight, and with that call lost.
func TestNextServer(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2, 1, 0, 0)
			w.links[0].set(5*time.Millisecond, 0)
			for i := range 200 {
				slow, fast := w.servers[0], w.servers[1]
				h, err := slow.acquire(t.Context(), key1, 1, 1, briefly, slow.countsOf(""))
				if err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
				time.Sleep(time.Duration(i%7) * time.Millisecond)

				// A call in flight, which may be lost.
				w.links[0].setCut(lost)
				h.key.shard.mu.Lock()
				go slow.write([]*call{h.key.call(time.Now())})
				h.key.shard.mu.Unlock()
				synctest.Wait()
				w.links[0].setCut(false)
				h.release()

				begin := time.Now()
				h, err = fast.acquire(t.Context(), key1, 1, 1, briefly, fast.countsOf(""))
				if err != nil {
					t.Fatalf("round %d, lost %v: %v after %v", i, lost, err, time.Since(begin))
				}
				h.release()
				time.Sleep(time.Duration(i%60) * time.Millisecond)
			}
		})
	}
}

// A server asks Redis about a key that is full at most once in 5 ms, and denies in between.
func TestDenialsAreCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers = 50
		w := newWorld(t, servers, 1, time.Millisecond, 0)
		h, err := w.servers[0].acquire(t.Context(), key1, 3, 3, patient, w.servers[0].countsOf(""))
		if err != nil {
			t.Fatal(err)
		}
		for _, patience := range []patience{patient, briefly} {
			var wg sync.WaitGroup
			before := w.redis.runs.Load()
			for i := range 10_000 {
				time.Sleep(100 * time.Microsecond)
				wg.Go(func() { _ = w.job(t.Context(), i%servers, key1, 1, 3, patience, 0) })
			}
			wg.Wait()
			t.Logf("%d calls for 10,000 denials of %d servers", w.redis.runs.Load()-before, servers)
			if calls := w.redis.runs.Load() - before; calls > 200*servers {
				t.Errorf("%d calls in a second; want at most %d", calls, 200*servers)
			}
		}
		h.release()
	})
}

// holders takes slots of a server and returns them.
func holders(t *testing.T, l *Limiter, n, most int) (all []*hold) {
	t.Helper()
	for range n {
		h, err := l.acquire(t.Context(), key1, 1, most, forever, l.countsOf(""))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

// free is how long a server waits for a slot.
func free(t *testing.T, l *Limiter, most int) time.Duration {
	t.Helper()
	begin := time.Now()
	h := holders(t, l, 1, most)[0]
	h.release()
	return time.Since(begin)
}

// The slots of a server that crashes are free when its lease ends, of one that is closed at once; slots that are older than a
// minute take a lease of a minute.
func TestCrashAndClose(t *testing.T) {
	for _, tt := range []struct {
		name        string
		age         time.Duration
		young       int           // of three slots, which are taken after that
		clock       time.Duration // step of Redis' clock at the crash
		close       bool
		least, most time.Duration
	}{
		{"crash", 0, 0, 0, false, 6 * time.Second, 11 * time.Second},
		{"crash of old slots", 2 * time.Minute, 0, 0, false, 40 * time.Second, 61 * time.Second},
		{"crash of a new slot beside old ones", 2 * time.Minute, 1, 0, false, 6 * time.Second, 11 * time.Second},
		{"close", 0, 0, 0, true, 0, 300 * time.Millisecond},
		{"clock goes back by an hour", 0, 0, -time.Hour, false, 6 * time.Second, 11 * time.Second},
		{"clock goes back by 5 s", 0, 0, -5 * time.Second, false, 6 * time.Second, 11 * time.Second},
		{"clock goes ahead", 0, 0, time.Hour, false, 0, 300 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2, 1, time.Millisecond, 0)
				holders(t, w.servers[0], 3-tt.young, 3)
				time.Sleep(tt.age)
				holders(t, w.servers[0], tt.young, 3)
				if tt.close {
					if err := w.servers[0].Close(t.Context()); err != nil {
						t.Error(err)
					}
				} else {
					w.links[0].setCut(true)
				}
				w.redis.step(tt.clock)
				if took := free(t, w.servers[1], 3); took < tt.least || took > tt.most {
					t.Errorf("the slots are free after %v; want %v to %v", took, tt.least, tt.most)
				}
			})
		})
	}
}

// Slots that are held for minutes stay, also while their lease becomes one of a minute.
func TestOldSlotsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 1, time.Millisecond, 0)
		old := holders(t, w.servers[0], 3, 3)
		for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(500 * time.Millisecond) {
			if _, err := w.servers[1].acquire(t.Context(), key1, 1, 3, patient, w.servers[1].countsOf("")); !errors.Is(err, ErrFull) {
				t.Fatalf("after %v: got %v; want %v", time.Since(begin), err, ErrFull)
			}
		}
		for _, h := range old {
			h.release()
		}
	})
}

// A server that was cut off for longer than its lease registers again, and its work goes on: nobody gets a slot until that is over.
func TestLateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 1, time.Millisecond, 0)
		late := holders(t, w.servers[0], 3, 3)
		w.links[0].setCut(true)
		others := holders(t, w.servers[1], 3, 3)
		w.links[0].setCut(false)
		time.Sleep(5 * time.Second)
		if total, sum := w.redis.total(key1); total != 6 || sum != 6 {
			t.Errorf("total %d, sum %d; want 6: what both run", total, sum)
		}
		for _, h := range append(late, others[0]) {
			h.release()
		}
		free(t, w.servers[0], 3)
		others[1].release()
		others[2].release()
		time.Sleep(5 * time.Second)
		if total, sum := w.redis.total(key1); total != 0 || sum != 0 {
			t.Errorf("total %d, sum %d; want 0", total, sum)
		}
	})
}

// A key that Redis refuses costs its own calls, once in a second: the leases of others hold.
func TestRefusedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 1, time.Millisecond, 0)
		keys := []string{key1}
		for i := range 200 { // several in the shard of the first
			keys = append(keys, fmt.Sprint("user:", i+2))
		}
		for _, key := range keys {
			if _, err := w.servers[0].acquire(t.Context(), key, 1, 1, patient, w.servers[0].countsOf("")); err != nil {
				t.Fatal(err)
			}
		}

		w.links[0].refuse(key1)
		before := w.redis.runs.Load()
		time.Sleep(30 * time.Second)
		if runs := w.redis.runs.Load() - before; runs > 15*int64(len(keys)) {
			t.Errorf("%d calls in 30 s; want at most one in 3 s for each of %d keys", runs, len(keys))
		}
		if n := w.links[0].refusals(); n > 31 {
			t.Errorf("the key was refused %d times in 30 s; want once in a second", n)
		}
		for _, key := range keys[1:] {
			if _, err := w.servers[1].acquire(t.Context(), key, 1, 1, patient, w.servers[1].countsOf("")); !errors.Is(err, ErrFull) {
				t.Fatalf("%s: got %v; want %v", key, err, ErrFull)
			}
		}
	})
}

// If Redis loses its data, at most Max more run, until each server has written once.
func TestSlotsAfterLostData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 1, time.Millisecond, 0)
		holds := holders(t, w.servers[0], 3, 3)
		w.redis.flush()
		holds = append(holds, holders(t, w.servers[1], 3, 3)...)
		time.Sleep(5 * time.Second)
		if total, sum := w.redis.total(key1); total != 6 || sum != 6 {
			t.Errorf("total %d, sum %d; want 6", total, sum)
		}
		if _, err := w.servers[2].acquire(t.Context(), key1, 1, 3, patient, w.servers[2].countsOf("")); !errors.Is(err, ErrFull) {
			t.Errorf("got %v; want %v", err, ErrFull)
		}
		for _, h := range holds {
			h.release()
		}
	})
}

// While Redis is away a server admits its share, which is 1 for one that has never reached Redis. Then it registers what it runs.
func TestShareOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 1, time.Millisecond, 0)
		w.links[3].setCut(true)
		for i := range 3 {
			holders(t, w.servers[i], 1, 3)
		}
		time.Sleep(4 * time.Second) // all have counted
		for i := range w.links {
			w.links[i].setCut(true)
		}
		for i, want := range []int{2, 2, 2, 1} {
			l := w.servers[i]
			if _, err := l.acquire(t.Context(), key1, 1, 6, patient, l.countsOf("")); errors.Is(err, ErrFull) || err == nil {
				t.Errorf("server %d: got %v; want that it is not decided", i, err)
			}
			for {
				if _, err := l.holdAlone(key1, 6, l.countsOf("")); err != nil {
					break
				}
			}
			if held := l.countsOf("").held.Load(); held != int64(want) {
				t.Errorf("server %d holds %d; want %d", i, held, want)
			}
		}
		for i := range w.links {
			w.links[i].setCut(false)
		}
		time.Sleep(2 * time.Second)
		if total, sum := w.redis.total(key1); total != 7 || sum != 7 {
			t.Errorf("total %d, sum %d; want 7", total, sum)
		}
		for _, l := range w.servers {
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if total, sum := w.redis.total(serversKey); total != 0 || sum != 0 {
			t.Errorf("servers: total %d, sum %d; want 0", total, sum)
		}
	})
}
