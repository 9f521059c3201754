package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Frequent ones of many subjects are found, with valid bounds.
func TestTopFindsFrequent(t *testing.T) {
	chance := rand.New(rand.NewPCG(5, 6))
	var top top
	counts := map[uint64]int64{}

	const all = 200_000
	for n := range all {
		hash := 1000 + chance.Uint64N(50_000)
		if n%20 == 0 {
			hash = chance.Uint64N(5)
		}
		counts[hash]++
		top.add(fmt.Sprint(hash), hash)
	}

	first := top.first(topSize)
	for i, c := range first {
		if least, most := c.n-c.inherited, c.n; counts[c.hash] < least || counts[c.hash] > most {
			t.Errorf("%s: got %d to %d; want %d", c.name, least, most, counts[c.hash])
		}
		if i < 5 && c.hash >= 5 {
			t.Errorf("number %d: got %s, which came %d times; want one of those that came %d times", i, c.name, counts[c.hash], all/100)
		}
		if c.inherited > all/topSize {
			t.Errorf("%s: the bounds are %d apart; want at most %d", c.name, c.inherited, all/topSize)
		}
	}

	if len(top.known) != topSize || len(first) != topSize {
		t.Errorf("holds %d and %d; want %d", len(top.known), len(first), topSize)
	}
}
