package keyfunc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// networks are the addresses of trusted proxies.
type networks []netip.Prefix

func (n networks) contain(addr netip.Addr) bool {
	return slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// mustNetworks parses the prefixes of a constructor. It panics with the constructor's name
// on the first invalid one.
func mustNetworks[P string | netip.Prefix](constructor string, prefixes []P) networks {
	if len(prefixes) == 0 {
		panic("keyfunc." + constructor + `: no prefixes; name the networks of your proxies, such as "10.0.0.0/8"`)
	}
	var trusted networks
	for _, p := range prefixes {
		network, err := parsePrefix(fmt.Sprint(p))
		if err != nil {
			panic(fmt.Sprintf("keyfunc.%s: %q %v", constructor, p, err))
		}
		trusted = append(trusted, network)
	}
	return trusted
}

// parsePrefix returns a network in the form of parseAddr's addresses: unmapped and without
// a zone.
func parsePrefix(text string) (netip.Prefix, error) {
	network, _ := netip.ParsePrefix(text)
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		network = netip.PrefixFrom(addr, addr.BitLen())
	}

	if !network.IsValid() {
		return netip.Prefix{}, errors.New(`is not a network; want "10.0.0.0/8", "2001:db8::/32" or one address`)
	}

	// parseAddr unmaps what it reads, so a mapped network would contain no peer.
	if addr := network.Addr(); addr.Is4In6() {
		if network.Bits() < 96 {
			return netip.Prefix{}, errors.New("mixes IPv4 and IPv6; write the IPv4 network as such")
		}
		network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
	}
	if network.Bits() == 0 {
		return netip.Prefix{}, errors.New("trusts every address, so that every client could choose its key; name the networks of your proxies")
	}
	return network.Masked(), nil
}
