package outage

import (
	"slices"
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
				g.Add(charge(u, 100000), name, now, now, 1)
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

// Time passes, replies are lost and Redis has room for part of a report: no more is given back than Redis has charged of what
// was refunded (invariant 5).
func TestNoMoreIsGivenBackThanWasCharged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, now := new(Grants), int64(1000)
		few := rapid.Int64Range(0, 40)

		// Ticks have numbers, in the order of their grants.
		var live []int // unreported
		granted, refunded := 0, make(map[int]bool)
		follow := func() {
			level := int64(0)
			g.with(1, now, func(b *bucket) { level = b.level })
			live = live[int64(len(live))-level:]
		}

		var id string // of the last report that Redis has charged
		var charged []int
		var replies []func(t *rapid.T) // that may still come

		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now += few.Draw(t, "ticks") },
			"grant": func(t *rapid.T) {
				follow()
				units := rapid.Int64Range(1, 5).Draw(t, "units")
				g.Add(charge(units, 100000), name, now, now, 1)
				for range 10 * units {
					granted++
					live = append(live, granted)
				}
			},
			"refund": func(t *rapid.T) {
				follow()
				ticks := few.Draw(t, "ticks")
				for range ticks - g.Refund(charge(1, 100000), ticks, now) {
					last := len(live) - 1
					refunded[live[last]] = true
					live = live[:last]
				}
			},
			"report": func(t *rapid.T) {
				follow()
				for _, r := range g.Reports(now, 1) {
					if r.ID != id {
						charged = slices.Clone(live[:min(r.Amount, few.Draw(t, "room"))])
					}
					if len(charged) > 0 {
						id = r.ID
					}

					ticks := charged
					replies = append(replies, func(t *rapid.T) {
						_, refund := g.Record(&r, int64(len(ticks)), now, now)
						meant := int64(0)
						for _, tick := range ticks {
							if refunded[tick] {
								meant++
							}
						}
						if -refund.Inc > meant {
							t.Fatalf("got a refund of %d; want %d at most", -refund.Inc, meant)
						}
					})
				}
			},
			"reply": func(t *rapid.T) {
				if len(replies) > 0 {
					rapid.SampledFrom(replies).Draw(t, "which")(t)
				}
			},
		})
	})
}

// What has drained before a repetition is not refunded with it: Redis has charged 50 of 100, 40 have drained and 30 were
// refunded, which are not among the 50.
func TestDrainedIsNotGivenBack(t *testing.T) {
	for _, tt := range []struct{ charged, refunded, want int64 }{{50, 30, 0}, {80, 30, 10}, {100, 30, 30}, {100, 0, 0}} {
		g := new(Grants)
		g.Add(charge(10, 1000), name, 1000, 1000, 1)
		g.Reports(1000, 1) // Redis charges it, and the reply is lost

		g.Refund(charge(1, 1000), tt.refunded, 1040)
		r := g.Reports(1040, 1)[0]
		wantTicks(t, "the repeated report", r.Amount, 60-tt.refunded)
		_, refund := g.Record(&r, tt.charged, 1100, 1040)
		wantTicks(t, "the refund", -refund.Inc, tt.want)
	}
}
