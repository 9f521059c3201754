package gcra_test

import (
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A peek takes nothing, sees an empty bucket where there is a queue, and with an
// invalid limit is an error.
func TestPeek(t *testing.T) {
	now := time.Unix(0, 0)
	store := &gcra.Memory{Now: func() time.Time { return now }}
	limit := gcra.PerMinute(3)
	peek := func() gcra.Result {
		t.Helper()
		r, err := gcra.Peek(t.Context(), store, "s", "p", limit)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if got, want := peek(), (gcra.Result{Allowed: true, Remaining: 3}); got != want {
		t.Errorf("an unknown subject: got %+v; want %+v", got, want)
	}
	mustTake(t, store, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 2})
	for range 2 {
		if got, want := peek(), (gcra.Result{Allowed: true, Remaining: 1, ResetAfter: 40 * time.Second}); got != want {
			t.Errorf("after 2 of 3: got %+v; want %+v", got, want)
		}
	}
	for range 4 {
		mustTake(t, store, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1, MaxDelay: time.Hour})
	}
	if got, want := peek(), (gcra.Result{Allowed: true, ResetAfter: time.Minute}); got != want {
		t.Errorf("6 of 3 by MaxDelay: got %+v; want %+v", got, want)
	}
	if _, err := gcra.Peek(t.Context(), store, "s", "p", gcra.Limit{}); err == nil {
		t.Error("Peek without a limit: got no error")
	}
	if err := gcra.Reset(t.Context(), store, "s", "p", gcra.Limit{}); err == nil {
		t.Error("Reset without a limit: got no error")
	}
}

// A reset is for all processes. The one that made it sees it at once, another
// that has cached a denial after DenialTTL.
func TestResetOnRedis(t *testing.T) {
	client := anyRedis(t)
	limit := gcra.PerHour(2)
	charge := gcra.Charge{Subject: t.Name(), Policy: "p", Limit: limit, Cost: 1}
	now := time.Now()
	ours, other := gcra.NewRedis(client), gcra.NewRedis(client)
	for _, r := range []*gcra.Redis{ours, other} {
		r.Timeout = 10 * time.Second
		r.SetMirrorClock(func() time.Time { return now })
	}
	for range 2 {
		mustTake(t, ours, charge)
	}
	for _, r := range []*gcra.Redis{ours, other} {
		if got := mustTake(t, r, charge)[0].Result; got.Allowed {
			t.Fatalf("the third of 2: got %+v; want a denial, which is then cached", got)
		}
	}
	if err := gcra.Reset(t.Context(), ours, t.Name(), "p", limit); err != nil {
		t.Fatal(err)
	}
	if got := mustTake(t, ours, charge)[0].Result; !got.Allowed || got.Remaining != 1 {
		t.Errorf("after the reset, here: got %+v; want allowed, 1 remaining", got)
	}
	if got := mustTake(t, other, charge)[0].Result; got.Allowed {
		t.Errorf("after the reset, elsewhere: got %+v; want the denial that is cached", got)
	}
	now = now.Add(time.Second + time.Millisecond) // the default DenialTTL
	if got := mustTake(t, other, charge)[0].Result; !got.Allowed || got.Remaining != 0 {
		t.Errorf("after the reset and DenialTTL, elsewhere: got %+v; want allowed, 0 remaining", got)
	}
	if got, err := gcra.Peek(t.Context(), ours, t.Name(), "p", limit); err != nil || got.Remaining != 0 {
		t.Errorf("a peek: got %+v, %v; want 0 remaining", got, err)
	}
}
