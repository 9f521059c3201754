package keyfunc

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// ipv6Bits is the length of the IPv6 prefix that is counted. A /64 is one link and the
// smallest network of a customer (RFC 6177 and RIPE-690 advise a /56 or a /48). The
// customer can send from all of its 2^64 addresses.
const ipv6Bits = 64

// RemoteAddr counts by the TCP peer, r.RemoteAddr: an IPv4 address ("ip:192.0.2.7") or the /64
// network of an IPv6 address ("ip:2001:db8::/64"; see [IPv6Prefix]). No header changes the key. A
// peer on a Unix socket is anonymous.
//
// Behind a proxy it counts the proxy. Run no function of an address after middleware that
// overwrites r.RemoteAddr from a header, such as chi's RealIP: a client that can send the header
// chooses its key.
func RemoteAddr(r *http.Request) (string, error) {
	peer := peerAddr(r)
	if nearby(peer) && len(r.Header[forwardedFor]) > 0 {
		reportProxy(r, peer, forwardedFor, "keyfunc.RemoteAddr does not read", trustedProxies(peer))
	}
	return addrKey(peer), nil
}

// peerAddr returns the address of the TCP peer, or the zero value if it has none.
func peerAddr(r *http.Request) netip.Addr {
	addr, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return netip.Addr{}
	}
	// On a unix socket the client chooses its name, which may look like an address.
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasPrefix(local.Network(), "unix") {
		return netip.Addr{}
	}

	// net/http gives every address a port.
	if _, _, err := net.SplitHostPort(r.RemoteAddr); err != nil {
		notice.Report(r.Context(), diag.AddrOverwritten,
			"r.RemoteAddr has no port, so middleware in front has overwritten it; if with a header of the client, clients choose their keys",
			"address", addr.String(), "hint", "mount the limiter before it, with keyfunc.TrustedProxies and the networks of your proxies")
	}
	return addr
}

// nearby reports whether a peer may be a proxy of this server. Other peers are clients,
// which may send the headers of a proxy.
func nearby(peer netip.Addr) bool {
	return peer.IsPrivate() || peer.IsLoopback() || peer.IsLinkLocalUnicast()
}

func trustedProxies(peer netip.Addr) string { return `keyfunc.TrustedProxies("` + peer.String() + `")` }

// reportProxy reports a nearby peer whose header the key function ignores, and the
// function that would read it.
func reportProxy(r *http.Request, peer netip.Addr, header, unread, want string) {
	notice.Report(r.Context(), diag.ProxyIgnored, "a private peer sends "+header+", which "+unread+
		"; if it is your proxy, its clients share one bucket", "peer", peer.String(), "hint", "use "+want)
}

// IPv6Prefix changes the IPv6 keys of an address function to networks of 32 to 64 bits. Many
// providers give homes a /56 and sites a /48:
//
//	keyfunc.IPv6Prefix(56, keyfunc.RemoteAddr)
//
// It leaves keys of [Join] unchanged: wrap the address function itself. An override of a narrower
// network, in a file of policies, applies to none of these keys.
func IPv6Prefix(bits int, key Func) Func {
	if bits < 32 || bits > ipv6Bits {
		panic(fmt.Sprintf("keyfunc.IPv6Prefix: %d bits; want 32 to %d, such as 48 or 56", bits, ipv6Bits))
	}
	mustHave("IPv6Prefix", key)

	return func(r *http.Request) (string, error) {
		k, err := key(r)
		if err != nil {
			return "", err
		}

		text, isAddr := strings.CutPrefix(k, "ip:")
		if !isAddr || !strings.Contains(text, "/") { // faster for IPv4 than an error of ParsePrefix
			return k, nil
		}

		// A function of the caller's may return any text after ip:, and a shorter network is wide enough.
		network, err := netip.ParsePrefix(text)
		if err != nil || !network.Addr().Is6() || network.Bits() <= bits {
			return k, nil
		}
		return networkKey(network.Addr(), bits), nil
	}
}

// addrKey returns the key of a result of parseAddr, "" if there is no address.
func addrKey(addr netip.Addr) string {
	switch {
	case addr.Is4():
		var buf [len("ip:255.255.255.255")]byte
		return string(addr.AppendTo(append(buf[:0], "ip:"...)))
	case addr.Is6():
		return networkKey(addr, ipv6Bits)
	}
	return ""
}

// networkKey returns the key of the network of addr with that many bits.
func networkKey(addr netip.Addr, bits int) string {
	var buf [64]byte // on the stack: the key is the only allocation
	return string(netip.PrefixFrom(addr, bits).Masked().AppendTo(append(buf[:0], "ip:"...)))
}

// parseAddr parses an address as a peer or a proxy writes it: with or without a port
// (an IPv6 address is then in brackets) and a zone, with spaces around it. The result
// has neither port nor zone and is unmapped, before it is masked or compared: masked
// as IPv6, all mapped addresses would be one network (CVE-2026-30827).
func parseAddr(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	host, port := s, "0"
	if strings.Contains(s, "]:") || strings.Count(s, ":") == 1 { // an IPv6 address has more than one
		colon := strings.LastIndexByte(s, ':') // the last, since a zone may contain some
		host, port = s[:colon], s[colon+1:]
	}
	// Brackets come in pairs, around IPv6 alone: others make the address invalid, below.
	host, bracketed := strings.CutPrefix(host, "[")
	host, closed := strings.CutSuffix(host, "]")

	// Without the zone: netip would intern it, which takes 5 µs for each new one.
	host, zone, zoned := strings.Cut(host, "%")
	addr, err := netip.ParseAddr(host)
	_, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || bracketed != closed || addr.Is4() && (bracketed || zoned) || zoned && zone == "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}
