package test

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Four processes with five callers each call a partner that allows 25 requests in any 5 seconds and 300 in
// any minute. They ask for three times as much, with rests, and the partner counts the calls in its windows.
// Their limits are those of docs/outbound.md, with Per longer by 1 %. GCRA with the default burst is
// there to compare: it allows the burst and the count in one window. In the short form the windows are one and
// three seconds, and Per is longer by 0.9.
func TestWindows(t *testing.T) { // not beside the others, see TestMain
	const processes, callers = 4, 5
	short, minute, margin, on, off := gcra.PerSecond(25), gcra.Limit{Count: 75, Per: 3 * time.Second}, 1.9, 3*time.Second, time.Second
	if long {
		short, minute, margin, on, off = gcra.Limit{Count: 25, Per: 5 * time.Second}, gcra.PerMinute(300), 1.01, 40*time.Second, 10*time.Second
	}
	lasting := 5 * (on + off) / 2 // two rests
	every := callers * processes * short.Per / time.Duration(3*short.Count)
	tab := newTable(t, "limits", "method", "calls", "most in 5 s", "most in a minute")
	for _, tt := range append(slices.Clone(recipes[:2]), recipe{name: "GCRA, default bursts"}) {
		for _, method := range []string{"Take", "Turns.Do"} {
			t.Run(tt.name+", "+method, func(t *testing.T) {
				t.Parallel()
				p := startPartner(t)
				c := calling{Redis: redistest.Start(t).URL(), Partner: p.URL, Log: tt.log, Callers: callers, Timeout: 20 * time.Second, On: on, Off: off}
				for _, l := range []gcra.Limit{tt.own(short, tt.short), tt.own(minute, tt.long)} {
					l.Per = time.Duration(margin * float64(l.Per))
					c.Limits = append(c.Limits, l)
				}
				if method == "Take" {
					c.Take = every
				}
				all := startCallers(t, processes, c)
				end := time.After(lasting)
				all.call()
				<-end
				if failed := all.end(t); failed != (failures{}) {
					t.Errorf("failures: %+v; want none", failed)
				}
				p.Close()
				inShort, inMinute := int64(p.most(short.Per)), int64(p.most(minute.Per))
				tab.add(tt.name, method, len(p.at), inShort, inMinute)
				mostShort, mostMinute := short.Count, minute.Count
				if tt.name == "GCRA, default bursts" {
					mostShort, mostMinute = 2*mostShort, 2*mostMinute
				}
				if inShort > mostShort || inMinute > mostMinute {
					t.Errorf("%d calls in %v and %d in %v; want at most %d and %d", inShort, short.Per, inMinute, minute.Per, mostShort, mostMinute)
				}
				if len(p.at) < int(minute.Count) {
					t.Errorf("%d calls; want %d, which a limit allows in %v", len(p.at), minute.Count, minute.Per)
				}
			})
		}
	}
}
