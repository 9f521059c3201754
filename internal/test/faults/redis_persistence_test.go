package faults

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A Redis that is killed keeps a quota by its append-only file: with appendfsync always
// all that was used, with everysec all but what was used within about the last second,
// and without the file nothing.
func TestFault41QuotaOfAKilledRedis(t *testing.T) {
	o := apart(t, "kill -9 of Redis, with and without an append-only file")
	const quota, half = 60, 20
	monthly := gcra.Charge{Subject: "customer", Policy: "monthly", Limit: gcra.Quota(quota, gcra.Yearly), Cost: 1}
	for _, tt := range []struct {
		name     string
		args     []string
		min, max int64 // used after the kill
	}{
		{"appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}, 2 * half, 2 * half},
		{"appendfsync everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, half, 2 * half},
		{"no append-only file", nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t, tt.args...)
			r := rigAt(t, server.URL(), config{Timeout: ample, DenialTTL: -1})
			works(t, r)

			use := func(n int64) (allowed int64) {
				for range n {
					res, err := o.take(r, monthly)
					if err != nil {
						t.Fatal(err)
					}
					if res.Allowed {
						allowed++
					}
				}

				return allowed
			}

			use(half)
			// The first half is in the file; how much of the second is, everysec leaves open.
			redistest.Eventually(t, ample, "the file to be written", func() bool {
				return redistest.Stat(t, server.Client(), "persistence", "aof_buffer_length:") == 0
			})
			use(half)
			server.Restart() // kill -9
			redistest.Eventually(t, ample, "the store to find the restarted server", func() bool { return answers(r) })
			used := spent(t, r, monthly)
			if used < tt.min || used > tt.max {
				t.Errorf("%d used after the kill, of %d before it; want %d to %d", used, 2*half, tt.min, tt.max)
			}
			if allowed := use(2 * quota); allowed != quota-used {
				t.Errorf("%d allowed after the kill; want the %d that are left", allowed, quota-used)
			}
			t.Logf("%d of %d lost", 2*half-used, 2*half)
		})
	}
}
