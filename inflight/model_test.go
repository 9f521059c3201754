package inflight

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Whatever calls overtake each other, are lost or arrive twice, at most Max run at once, and when all is over nothing is held.
func TestSlotsModel(t *testing.T) {
	type job struct{ after, runs, server, key, n, most, patience int }
	rapid.Check(t, func(rt *rapid.T) {
		servers := rapid.IntRange(1, 4).Draw(rt, "servers")
		seed := rapid.Uint64().Draw(rt, "seed")
		near := time.Duration(rapid.IntRange(0, 25).Draw(rt, "ms")) * time.Millisecond
		loss := rapid.SampledFrom([]float64{0, 0.02, 0.2}).Draw(rt, "loss")
		jobs := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) job {
			return job{
				rapid.IntRange(0, 400).Draw(rt, "after"), rapid.IntRange(0, 200).Draw(rt, "runs"), rapid.IntRange(0, servers-1).Draw(rt, "server"),
				rapid.IntRange(0, 1).Draw(rt, "key"), rapid.IntRange(1, 2).Draw(rt, "n"),
				rapid.IntRange(2, 3).Draw(rt, "most"), rapid.IntRange(0, 3).Draw(rt, "patience"),
			}
		}), 1, 60).Draw(rt, "jobs")

		fault := ""
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, servers, seed, near, loss)
			var wg sync.WaitGroup
			for _, j := range jobs {
				wg.Go(func() {
					time.Sleep(time.Duration(j.after) * time.Millisecond)
					ctx := t.Context()
					if j.patience == 3 { // a client that hangs up
						short, cancel := context.WithTimeout(ctx, time.Duration(j.runs)*time.Millisecond/4)
						defer cancel()
						ctx = short
					}
					p := []patience{patient, briefly, forever, forever}[j.patience]
					_ = w.job(ctx, j.server, fmt.Sprint(j.key), j.n, j.most, p, time.Duration(j.runs)*time.Millisecond)
				})
			}
			wg.Wait()

			for key, most := range w.most {
				if most > 3 {
					fault = fmt.Sprintf("key %s: %d ran at once; want at most 3", key, most)
				}
			}
			for _, l := range w.links {
				l.set(0, 0) // or a call may take longer than it may, again and again
			}
			time.Sleep(5 * time.Second)
			for _, key := range w.redis.keys() {
				if total, sum := w.redis.total(key); key != serversKey && (total != 0 || sum != 0) {
					fault = fmt.Sprintf("key %s: all is over, and total is %d, the sum of the fields %d", key, total, sum)
				}
			}
			for _, l := range w.servers {
				if n := l.keys.Load(); n > 1 { // one is the servers'
					fault = fmt.Sprintf("all is over, and a server knows %d keys", n)
				}
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}
