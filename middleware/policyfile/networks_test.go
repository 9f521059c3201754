package policyfile_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Random networks and clients have the limit, and the network's name, that a search of the
// whole list finds.
func TestOverridesAgainstAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr { // few bits differ, so networks nest
		b := [16]byte{0x20, 1, 0xd, 0xb8, byte(random.IntN(4) << 6), byte(random.IntN(2)), byte(random.IntN(3)), 0, 1}
		if random.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{b[4], b[5], b[6], byte(random.IntN(4))})
		}
		return netip.AddrFrom16(b)
	}

	prefix := func(shortest int) netip.Prefix {
		a := address()
		return netip.PrefixFrom(a, min(shortest+random.IntN(70), min(a.BitLen(), 64))).Masked()
	}

	for range 50 {
		list := map[netip.Prefix]int{}
		var text strings.Builder
		for i := range 1 + random.IntN(80) {
			if p := prefix(0); list[p] == 0 {
				list[p] = i + 1
				fmt.Fprintf(&text, ", {limit: %d/minute, subjects: ['ip:%v']}", i+1, p)
			}
		}

		policy := parse(t, one("overrides: ["+text.String()[2:]+"]"))[0]
		for range 500 {
			p := prefix(20)
			subject := "ip:" + p.String()
			if p.IsSingleIP() {
				subject = "ip:" + p.Addr().String()
			}

			want, longest, name := 0, -1, ""
			for q, n := range list {
				if q.Bits() <= p.Bits() && q.Contains(p.Addr()) && q.Bits() > longest {
					want, longest, name = n, q.Bits(), "ip:"+q.String()
					if q.IsSingleIP() {
						name = subject
					}
				}
			}

			o, ok := policy.Override(subject)
			if o.Name != name {
				t.Fatalf("%s in %v: got the name %q; want %q", subject, list, o.Name, name)
			}
			if ok != (want > 0) || ok && o.Limit != gcra.PerMinute(int64(want)) {
				t.Fatalf("%s in %v: got %v, %t; want %d", subject, list, o.Limit, ok, want)
			}
		}
	}
}
