package policyfile

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// networks are networks and their limits, sorted by address and then by length: a
// network comes before those that it contains.
type networks []network

type network struct {
	netip.Prefix
	limit  gcra.Limit
	parent int // index of the longest network that contains this one, or -1
}

func newNetworks(limits map[netip.Prefix]gcra.Limit) networks {
	ns := make(networks, 0, len(limits))
	for prefix, limit := range limits {
		ns = append(ns, network{prefix, limit, -1})
	}
	slices.SortFunc(ns, func(a, b network) int { return compareMasked(a.Prefix, b.Prefix) })
	for i := range ns {
		ns[i].parent = ns.up(i-1, ns[i].Prefix)
	}
	return ns
}

// longest returns the longest network that contains the prefix, which is masked, or nil.
// In the order of the list, that network is the last one up to the prefix, or contains
// that one. So a binary search and at most 33 (IPv4) or 129 (IPv6) steps up find it.
func (ns networks) longest(prefix netip.Prefix) *network {
	after := sort.Search(len(ns), func(i int) bool { return compareMasked(ns[i].Prefix, prefix) > 0 })
	i := ns.up(after-1, prefix)
	if i < 0 {
		return nil
	}
	return &ns[i]
}

// compareMasked is Prefix.Compare for masked prefixes, which that would mask again.
func compareMasked(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return cmp.Compare(a.Bits(), b.Bits())
}

// up returns the index of the first network that contains the prefix, from index i up
// through the parents, or -1.
func (ns networks) up(i int, prefix netip.Prefix) int {
	for i >= 0 && (ns[i].Bits() > prefix.Bits() || !ns[i].Contains(prefix.Addr())) {
		i = ns[i].parent
	}
	return i
}
