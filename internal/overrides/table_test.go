package overrides_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/overrides"
)

// The longest prefix counts, whatever a shorter one says; at one length a ban, then the entry of the
// policy. A search of the whole list finds the same.
func TestTableAgainstAList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Now()
	network := func() netip.Prefix { // few bits differ, so networks nest
		a := netip.AddrFrom4([4]byte{198, 51, byte(random.IntN(2)), byte(random.IntN(4))})
		return netip.PrefixFrom(a, 22+random.IntN(11)).Masked()
	}
	key := func(p netip.Prefix) string {
		if p.IsSingleIP() {
			return "ip:" + p.Addr().String()
		}
		return "ip:" + p.String()
	}

	for range 500 {
		var table overrides.Table
		list := map[string]overrides.Entry{}
		for range random.IntN(20) {
			e := overrides.Entry{Subject: key(network()), Policy: []string{"", "p", "q"}[random.IntN(3)],
				Limit: []string{overrides.Banned, overrides.Default, "none"}[random.IntN(3)], Until: now.Add(time.Duration(random.IntN(4)-1) * time.Hour)}
			if _, twice := list[e.Field()]; !twice {
				list[e.Field()] = e
				table.Add(e)
			}
		}

		client := netip.AddrFrom4([4]byte{198, 51, byte(random.IntN(2)), byte(random.IntN(4))})
		want, longest := overrides.Entry{}, -1
		for _, e := range list {
			p, err := netip.ParsePrefix(e.Subject[3:])
			if err != nil {
				p = netip.PrefixFrom(netip.MustParseAddr(e.Subject[3:]), 32)
			}
			applies := p.Contains(client) && e.Policy != "q" && now.Before(e.Until)
			if applies && (p.Bits() > longest || p.Bits() == longest && e.Wins(&want)) {
				want, longest = e, p.Bits()
			}
		}

		if got := table.Find("p", "ip:"+client.String(), now); longest < 0 && got != nil || longest >= 0 && (got == nil || got.Entry != want) {
			t.Fatalf("%v in %v: got %+v; want %+v", client, list, got, want)
		}
	}
}

// The look-up beside a map's, with as many entries as there may be.
func BenchmarkFind(b *testing.B) {
	addr := func(i int) string { return fmt.Sprintf("ip:198.%d.%d.7", 18+i/250, i%250) }
	keys, nets := new(overrides.Table), new(overrides.Table)
	plain, now := map[string]int{}, time.Now()
	for i := range overrides.Most {
		plain[addr(i)] = i
		e := overrides.Entry{Subject: addr(i), Limit: "none", Until: now.Add(time.Hour)}
		keys.Add(e)
		e.Subject = fmt.Sprintf("ip:198.%d.%d.0/%d", 18+i/250, i%250, 24+i%3)
		nets.Add(e)
	}

	const key, other = "ip:198.20.9.7", "ip:203.0.113.7"
	b.Run("map", func(b *testing.B) {
		for b.Loop() {
			_ = plain[key]
		}
	})
	for name, table := range map[string]*overrides.Table{"addresses": keys, "networks": nets} {
		for _, key := range []string{key, other} {
			b.Run(fmt.Sprintf("%s/found=%t", name, table.Find("p", key, now) != nil), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					table.Find("p", key, now)
				}
			})
		}
	}
}
