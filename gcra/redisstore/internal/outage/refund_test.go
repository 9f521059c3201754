package outage

import (
	"testing"

	"pgregory.net/rapid"
)

// Without time passing, and with room in Redis: Redis and what is unreported together have what was granted, less at most what
// was refunded. A refund gives nothing back in Redis that Redis may not have charged.
func TestNothingIsRefundedThatWasNotCharged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, now := new(Grants), int64(1000)
		var granted, refunded, redis, room, markCharged int64
		var markID string

		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				u := rapid.Int64Range(1, 5).Draw(t, "units")
				g.Add(charge(u, 100000), name, now, now, 1)
				granted += 10 * u
			},
			"room": func(t *rapid.T) { room += rapid.Int64Range(0, 60).Draw(t, "room") },
			"refund": func(t *rapid.T) {
				ticks := rapid.Int64Range(1, 40).Draw(t, "ticks")
				refunded += ticks - g.Refund(charge(1, 100000), ticks, now)
			},
			"report": func(t *rapid.T) {
				for _, r := range g.Reports(now, 1) {
					if rapid.Bool().Draw(t, "request lost") {
						continue
					}
					charged := markCharged
					if markID != r.ID {
						if charged = min(r.Amount, room); charged > 0 {
							markID, markCharged = r.ID, charged
							redis, room = redis+charged, room-charged
						}
					}
					if rapid.Bool().Draw(t, "reply lost") {
						continue
					}
					g.Record(&r, charged, now, now)
				}
			},
			"": func(t *rapid.T) {
				b := g.of[1]
				if b != nil && b.id != "" {
					return
				}
				total := redis
				if b != nil {
					total += b.level
				}
				if total > granted || total < granted-refunded {
					t.Fatalf("Redis and what is unreported have %d; want %d to %d", total, granted-refunded, granted)
				}
			},
		})
	})
}
