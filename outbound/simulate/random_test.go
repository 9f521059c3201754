package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// The same seed draws the same worlds and gives the same tables, another seed others.
func TestRandom(t *testing.T) {
	tables := func(seed uint64) string {
		var b bytes.Buffer
		if err := simulate(&b, io.Discard, settings{seed: seed, random: 4, each: true}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}

	first := tables(5)
	if again := tables(5); again != first {
		t.Errorf("got\n%s\nand then\n%s", first, again)
	}
	if other := tables(6); other == first || !strings.Contains(other, "adaptive") {
		t.Errorf("seeds 5 and 6 both gave\n%s", first)
	}
}

// A partner keeps to its limits whatever its clients do.
func TestAPIKeepsItsLimits(t *testing.T) {
	for i := range uint64(300) {
		d := newDraw(rand.New(rand.NewPCG(1, i)))
		d.block, d.out, d.cached, d.dearest = 0, 0, false, 1
		r := rand.New(rand.NewPCG(2, i))
		server := newAPI(d, r)

		allowed, windows := int64(0), int64(20)
		end := 20 * d.shortest()
		for at := time.Duration(0); at < end; at += 1 + end/time.Duration(3+r.Int64N(60*d.limits[0].units)) {
			if !server.answer(at).denied {
				allowed++
			}
		}
		if l := d.limits[0]; allowed > windows*l.units+l.burst {
			t.Errorf("%v: allowed %d in %d windows", d, allowed, windows)
		}
	}
}
