package keyfunc

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// ipv6Bits is how much of an IPv6 address is counted. A /64 is one link and the
// least that a customer is given (RFC 6177 and RIPE-690 advise a /56 or a /48),
// and whoever has it has 2^64 addresses to come from.
const ipv6Bits = 64

// RemoteAddr counts the TCP peer as net/http reports it in r.RemoteAddr: an
// IPv4 address whole ("ip:192.0.2.7"), an IPv6 address by its /64 network
// ("ip:2001:db8::/64"; see [IPv6Prefix] for wider ones). No header is read.
//
// Use it where clients connect to this server directly. Behind a proxy it
// counts the proxy; take [TrustedProxies] there. It is also no better than
// whatever wrote r.RemoteAddr: a middleware that overwrites it from a header
// (chi's RealIP, gorilla's ProxyHeaders) hands the key to the client.
//
// An IPv4-mapped IPv6 address (::ffff:192.0.2.7) is the IPv4 address. All other
// addresses that embed an IPv4 address (6to4, NAT64) are IPv6 addresses like
// any other. Port and zone are dropped. A peer that is not an address, as on a
// Unix socket, is anonymous. The key has at most 27 bytes.
//
// The limiter logs it if a request from a private or loopback address has
// X-Forwarded-For, which most likely means a proxy.
func RemoteAddr(r *http.Request) (string, error) {
	peer, _ := parseAddr(r.RemoteAddr)
	if nearby(peer) && len(r.Header[forwardedFor]) > 0 {
		reportProxy(r, peer, forwardedFor, "keyfunc.RemoteAddr does not read", trustedProxies(peer))
	}
	return addrKey(peer), nil
}

// nearby reports whether a peer may be a proxy of this server. Others are
// clients, and may send the headers of a proxy if they like.
func nearby(peer netip.Addr) bool {
	return peer.IsPrivate() || peer.IsLoopback() || peer.IsLinkLocalUnicast()
}

func trustedProxies(peer netip.Addr) string { return `keyfunc.TrustedProxies("` + peer.String() + `")` }

// reportProxy reports a nearby peer whose header is not read, and the function
// that would read it.
func reportProxy(r *http.Request, peer netip.Addr, header, unread, want string) {
	notice.Report(r.Context(), diag.ProxyIgnored, "a private peer sends "+header+", which "+unread+
		"; if it is your proxy, its clients share one bucket", "peer", peer.String(), "hint", "use "+want)
}

// IPv6Prefix counts the IPv6 clients among the answers of key by the network of
// that many bits instead of by /64. Providers give homes a /56 and sites a /48,
// so that one customer may own 256 or 65,536 networks of /64:
//
//	keyfunc.IPv6Prefix(56, keyfunc.RemoteAddr)
//
// All other answers of key pass unchanged: IPv4 addresses, identities, errors,
// and what [Join] has put together. So wrap the address function itself.
//
// IPv6Prefix panics if bits is not in 32 to 64 (wider is more than one provider
// is given, narrower is one bucket for each address that a customer picks) or
// if key is nil.
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
		if !isAddr || !strings.Contains(text, "/") { // spares IPv4 an error that is thrown away
			return k, nil
		}
		network, err := netip.ParsePrefix(text)
		if err != nil || !network.Addr().Is6() || network.Bits() <= bits {
			return k, nil
		}
		return networkKey(network.Addr(), bits), nil
	}
}

// addrKey is the key of an address that parseAddr has returned; "" for none.
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

// networkKey is the key of the IPv6 network of that many bits that addr is in.
func networkKey(addr netip.Addr, bits int) string {
	var buf [64]byte // on the stack: the key is the only allocation
	return string(netip.PrefixFrom(addr, bits).Masked().AppendTo(append(buf[:0], "ip:"...)))
}

// parseAddr reads one address as a peer or a proxy writes it: alone or with a
// port, IPv6 in brackets when it has one, with a zone or without, with blanks
// around it. The result has neither port nor zone and is unmapped here, once,
// before anybody masks or compares it: masked as IPv6, all mapped addresses
// would be one network (CVE-2026-30827).
func parseAddr(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	host, port, hasPort := s, "", false
	bracketed := strings.HasPrefix(s, "[")
	if bracketed {
		end := strings.LastIndexByte(s, ']') // the last: a zone may hold one
		if end < 0 {
			return netip.Addr{}, false
		}
		host = s[1:end]
		if port, hasPort = strings.CutPrefix(s[end+1:], ":"); !hasPort && end+1 < len(s) {
			return netip.Addr{}, false
		}
	} else if h, p, found := strings.Cut(s, ":"); found && !strings.Contains(p, ":") {
		host, port, hasPort = h, p, true // one colon: no IPv6 address has so few
	}
	if hasPort {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return netip.Addr{}, false
		}
	}

	// The zone goes before netip sees it, which would keep its text for good.
	host, zone, zoned := strings.Cut(host, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is4() && (zoned || bracketed) || zoned && zone == "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}
