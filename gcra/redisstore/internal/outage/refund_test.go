package outage

import (
	"testing"

	"pgregory.net/rapid"
)

// Without time passing, and with room in Redis: what Redis has, with what is unreported, is what was granted and not refunded.
func TestNothingIsRefundedThatWasNotCharged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, now := new(Grants), int64(1000)
		var truth, redis, room, markCharged int64
		var markID string
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				u := rapid.Int64Range(1, 5).Draw(t, "units")
				g.Add(charge(u, 100000), func() string { return "key" }, now, now, 1)
				truth += 10 * u
			},
			"room": func(t *rapid.T) { room += rapid.Int64Range(0, 60).Draw(t, "room") },
			"refund": func(t *rapid.T) {
				ticks := rapid.Int64Range(1, 40).Draw(t, "ticks")
				rest := g.Refund(charge(1, 100000), ticks, now)
				truth -= ticks - rest
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
					_, refund := g.Record(&r, charged, now, now)
					redis += refund.Inc
					room -= refund.Inc
				}
			},
			"": func(t *rapid.T) {
				var b *bucket
				if b = g.of[1]; b == nil || b.id == "" {
					level := int64(0)
					if b != nil {
						level = b.level
					}
					if redis+level != truth {
						t.Fatalf("Redis has %d and %d is unreported; granted and not refunded are %d", redis, level, truth)
					}
				}
			},
		})
	})
}
