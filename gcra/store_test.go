package gcra_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
)

// A peek takes nothing, shows a queue as an empty bucket, and returns an error for
// an invalid limit.
func TestPeek(t *testing.T) {
	now := time.Unix(0, 0)
	store := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
	limit := gcra.PerMinute(3)
	peek := func() gcra.Result {
		t.Helper()
		r, err := gcra.Peek(t.Context(), store, gcra.Charge{Subject: "s", Policy: "p", Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	if got, want := peek(), (gcra.Result{Allowed: true, Remaining: 3}); got != want {
		t.Errorf("an unknown subject: got %+v; want %+v", got, want)
	}
	gcratest.MustTake(t, store, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 2})
	for range 2 {
		if got, want := peek(), (gcra.Result{Allowed: true, Remaining: 1, ResetAfter: 40 * time.Second}); got != want {
			t.Errorf("after 2 of 3: got %+v; want %+v", got, want)
		}
	}

	for range 4 {
		gcratest.MustTake(t, store, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1, MaxDelay: time.Hour, MaxWait: time.Hour})
	}

	if got, want := peek(), (gcra.Result{Allowed: true, ResetAfter: time.Minute}); got != want {
		t.Errorf("6 of 3 by MaxDelay: got %+v; want %+v", got, want)
	}
	if _, err := gcra.Peek(t.Context(), store, gcra.Charge{Subject: "s", Policy: "p"}); err == nil {
		t.Error("Peek without a limit: got no error")
	}
	if err := gcra.Reset(t.Context(), store, gcra.Charge{Subject: "s", Policy: "p"}); err == nil {
		t.Error("Reset without a limit: got no error")
	}
}

// An error about a charge has the name of the field.
func TestInvalidChargeNamesField(t *testing.T) {
	for want, c := range map[string]gcra.Charge{
		"MaxDebt is -1": {MaxDebt: -1}, "MaxWait is -1ns": {MaxWait: -1}, "MaxDelay is -1ns": {MaxDelay: -1}, "cost is -1": {Cost: -1},
	} {
		c.Policy, c.Limit = "p", gcra.PerMinute(1)
		if _, err := gcra.Take(t.Context(), gcra.NewMemory(), c); err == nil || !strings.Contains(err.Error(), `charge on policy "p": `+want) {
			t.Errorf("got %v; want %s", err, want)
		}
	}
}
