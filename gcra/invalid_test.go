package gcra_test

import (
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
)

// An error about a charge names the field as the program spells it.
func TestInvalidChargeNamesField(t *testing.T) {
	for want, c := range map[string]gcra.Charge{
		"MaxWait is -1ns": {MaxWait: -1}, "MaxDelay is -1ns": {MaxDelay: -1}, "cost is -1": {Cost: -1},
	} {
		c.Policy, c.Limit = "p", gcra.PerMinute(1)
		for _, s := range []gcra.Store{gcra.NewMemory(), slidinglog.NewMemory()} {
			if _, err := gcra.Take(t.Context(), s, c); err == nil || !strings.Contains(err.Error(), `charge on policy "p": `+want) {
				t.Errorf("%T: got %v; want %s", s, err, want)
			}
		}
	}
}
