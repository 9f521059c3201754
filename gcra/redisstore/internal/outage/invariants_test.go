package outage

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// Each test names the invariant of the bucket that it is about. grants_test.go has a queue's, refund_test.go a
// refund's.

func wantTicks(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %d; want %d", what, got, want)
	}
}

var anHour = tat.Ticks(time.Hour)

// Invariant 2: of two servers the local TAT drains one unit in the time of two. A refund that is sent forgets what Redis said.
func TestForget(t *testing.T) {
	g := new(Grants)
	g.Add(charge(3, 1000), name, 1000, 1000, 2)
	g.Learn(1, 1500, 1000)
	wantTicks(t, "the local TAT", g.Forget(1, 1000), 1060)
	wantTicks(t, "what is unreported", g.Ahead(charge(1, 1000), 1000, 1000), 30)
}

// Invariant 2: before servers are counted anew, level drains by the old count.
func TestServersAreCountedAnew(t *testing.T) {
	g := new(Grants)
	g.Add(charge(2, 1000), name, 1000, 1000, 5)
	now := 1000 + tat.Ticks(patience) + 50 // of which a fifth drains
	g.Add(charge(1, 1000), name, now, now, 1)
	wantTicks(t, "what is unreported", g.Ahead(charge(1, 1000), now, now), 20)
}

// Invariant 2: a quota gives nothing back, and has no local TAT that drains. What Redis said of it stays.
func TestForgetAQuota(t *testing.T) {
	g, now := new(Grants), int64(1000)
	c := quota(3, now)
	g.Add(c, name, now, c.Period, 2)
	g.Learn(1, c.Period+50, now)
	wantTicks(t, "the local TAT", g.Forget(1, now), 0)
	wantTicks(t, "what is ahead", g.Ahead(c, c.Period, now), 80)
}

// Invariant 4: a reply to a report of the period before drops nothing of this one.
func TestDropIsOfItsReport(t *testing.T) {
	g, now := new(Grants), int64(1000)
	g.Add(quota(1, now), name, now, now, 1)
	late := g.Reports(now, 1)[0]

	now += anHour
	c := quota(3, now)
	g.Add(c, name, now, now, 1)
	g.Drop(&late, now)
	wantTicks(t, "what is unreported", g.Ahead(c, now, now), 30)

	r := g.Reports(now, 1)[0]
	g.Drop(&r, now)
	wantTicks(t, "after its own reply", g.Ahead(c, now, now), 0)
}

// Invariant 4: a refund of another period takes nothing from level.
func TestRefundOfAnotherPeriod(t *testing.T) {
	g, now := new(Grants), 2*anHour
	c := quota(3, now)
	g.Add(c, name, now, now, 1)

	refund := quota(1, now)
	refund.Refunds = c.Period - anHour
	wantTicks(t, "not unreported of the period before", g.Refund(refund, 10, now), 10)
	refund.Refunds = c.Period
	wantTicks(t, "not unreported of this one", g.Refund(refund, 10, now), 0)
}

// Invariant 7: a lower limit brings down level and known, or a server would deny for longer than the limit does.
func TestLowerLimit(t *testing.T) {
	g := new(Grants)
	g.Add(charge(1, 1000), name, 1000, 1000, 1)
	g.Learn(1, 1900, 1000)
	wantTicks(t, "what is ahead", g.Ahead(charge(1, 60), 1000, 1000), 60+10)
}

// Invariant 7: a peek, which has no MaxDelay and so another Top, is no change of the limit.
func TestPeekIsNoOtherLimit(t *testing.T) {
	g := new(Grants)
	g.Add(charge(12, 150), name, 1000, 1000, 1)
	g.Ahead(charge(0, 100), 1000, 1000)
	wantTicks(t, "what is ahead", g.Ahead(charge(1, 150), 1000, 1000), 120)
}

// Invariant 7: a late charge, which may be of an earlier limit, raises the clamp and does not lower it.
func TestLateChargeRaisesTheClamp(t *testing.T) {
	for _, tt := range []struct{ late, want int64 }{{60, 100}, {160, 160}} {
		g := new(Grants)
		g.Add(charge(1, 100), name, 1000, 1000, 1)
		late := charge(1, tt.late)
		late.Late = true
		g.Ahead(late, 1000, 1000)
		g.Add(late, name, 1000, 1000, 1)
		wantTicks(t, "the top", g.Reports(1000, 1)[0].Top, tt.want)
	}
}

// Parts of units that are reported add up to units.
func TestPartsOfUnitsAreReported(t *testing.T) {
	g := new(Grants)
	g.Add(charge(2, 1000), name, 1000, 1000, 1)
	g.Learn(1, 1900, 1000) // nothing drains
	for now := int64(1000); g.Any() && now < 1900; now += 10 {
		for _, r := range g.Reports(now, 1) {
			g.Record(&r, min(3, r.Amount), 1900, now)
		}
	}
	wantTicks(t, "units reported", g.Units().Reported, 2)

	// No more than were granted, also when the limit has changed.
	g = twoOfAnotherT()
	r := g.Reports(1000, 1)[0]
	g.Record(&r, r.Amount, 1000, 1000)
	wantTicks(t, "units reported of two with another T", g.Units().Reported, 2)
}

// twoOfAnotherT has two units, of which the first is as long as ten of the limit that has come since.
func twoOfAnotherT() *Grants {
	g := new(Grants)
	long := charge(10, 1000)
	long.Emission = 100
	g.Add(long, name, 1000, 1000, 1)
	g.Add(charge(1, 1000), name, 1000, 1000, 1)
	return g
}

// Units that have drained are not lost, nor those that are lost once lost again, nor more than were granted.
func TestLostUnits(t *testing.T) {
	g := new(Grants)
	g.Add(charge(5, 1000), name, 1000, 1000, 1)
	for range 2 {
		g.Close(1030)
		wantTicks(t, "units lost after 3 of 5 have drained", g.Units().Lost, 2)
	}

	g = twoOfAnotherT()
	g.Close(1000)
	wantTicks(t, "units lost of two with another T", g.Units().Lost, 2)
}

// A round has the reports that were asked for at most. A bucket that has ended is gone with its reply.
func TestReports(t *testing.T) {
	g := new(Grants)
	for hash := range uint64(5) {
		c := charge(1, 1000)
		c.Hash = hash
		g.Add(c, name, 1000, 1000, 1)
	}
	wantTicks(t, "reports", int64(len(g.Reports(1000, 3))), 3)

	for _, r := range g.Reports(1000, 10) {
		g.Record(&r, r.Amount, 1010, 1000)
	}
	if g.Any() {
		t.Error("all is reported, and something is unreported")
	}
}
