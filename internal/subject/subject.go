// Package subject knows which keys the address functions of keyfunc return, for subjects that
// people write down: in a file of policies, or on the command line.
package subject

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Kind begins the keys of keyfunc's address functions.
const Kind = "ip:"

// clientBits is the longest network that an IPv6 client counts by; see keyfunc.RemoteAddr.
const clientBits = 64

// Network returns the network that a subject is, or the zero Prefix for any key that
// is no address. An address or a network that no key can be is an error.
func Network(s string) (network netip.Prefix, err error) {
	text, isAddr := strings.CutPrefix(s, Kind)
	network, ok := ParseNetwork(text)
	addr, bits := network.Addr(), network.Bits()

	// A client has one key, so any other spelling of its address would match nothing.
	switch {
	case !isAddr && ok && strings.Contains(text, "/"):
		return network, fmt.Errorf("keys that are addresses begin with ip:; want %q", Key(network.Masked()))
	case !isAddr:
		return netip.Prefix{}, nil
	case !ok:
		return network, errors.New(`want an address or a network such as "ip:192.0.2.7" or "ip:2001:db8::/64"`)
	case addr.Is4In6() && bits >= 96:
		want := netip.PrefixFrom(addr.Unmap(), bits-96).Masked()
		return network, fmt.Errorf("it is an IPv4 address in IPv6 form; want %q", Key(want))
	case addr.Is6() && bits > clientBits:
		want := netip.PrefixFrom(addr, clientBits).Masked()
		return network, fmt.Errorf("IPv6 clients count by their network, of %d bits or less; want one such as %q", clientBits, Key(want))
	case network != network.Masked():
		return network, fmt.Errorf("the address has bits beyond its first %d; want %q", bits, Key(network.Masked()))
	}

	return network, nil
}

// Key returns the key of a client that is this network, or the one address in it.
func Key(network netip.Prefix) string {
	if network.IsSingleIP() {
		return Kind + network.Addr().String()
	}
	return Kind + network.String()
}

// ParseNetwork parses a network, or an address as the network that has only this one.
func ParseNetwork(text string) (netip.Prefix, bool) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		return prefix, err == nil
	}
	addr, err := netip.ParseAddr(text)
	return netip.PrefixFrom(addr.WithZone(""), addr.BitLen()), err == nil
}
