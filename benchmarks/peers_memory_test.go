package main

import (
	"testing"
)

func TestMemoryContestants(t *testing.T) {
	for _, l := range []limit{tight, roomy, endless} {
		cs, err := memoryContestants(l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(cs) })
		for _, c := range cs {
			checkContestant(t, c, l, "memory")
		}
	}
}
