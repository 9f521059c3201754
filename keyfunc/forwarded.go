package keyfunc

import (
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const (
	forwardedFor = "X-Forwarded-For"
	forwarded    = "Forwarded"
)

// TrustedProxies counts by the client's address in X-Forwarded-For, as written by proxies in the
// given networks or at the given addresses. The keys are as [RemoteAddr]'s.
//
//	keyfunc.TrustedProxies("10.0.0.0/8", "2001:db8:1::/48")
//
// The client is the first address outside the networks: the peer, or a hop, read from the last to
// the first. Reading stops at a hop that is no address; the client is then the last one read.
//
// List every proxy that requests pass, and nothing else: clients inside a listed network can
// choose their keys. A peer on a Unix socket is in no network; use [TrustedHops] there.
func TrustedProxies[P string | netip.Prefix](prefixes ...P) Func {
	trusted := mustNetworks("TrustedProxies", prefixes)
	return func(r *http.Request) (string, error) {
		return addrKey(trusted.client(r, forwardedFor, lastComma, parseAddr, "keyfunc.TrustedProxies")), nil
	}
}

// TrustedHops counts by the n-th hop from the right in X-Forwarded-For. n is the sum of the entries
// that each of your proxies appends: one for most, two for Google's load balancers. If there is no
// such address, the peer is counted.
//
// It trusts every peer: requests must reach this server only through all of the proxies. If n is too
// high, or clients bypass the proxies, they can choose their keys; if n is too low, proxies are
// counted.
func TrustedHops(n int) Func {
	if n < 1 {
		panic(fmt.Sprintf("keyfunc.TrustedHops: %d entries; want 1 or more, or use RemoteAddr", n))
	}

	return func(r *http.Request) (string, error) {
		// From the right, as proxies append: what is left of the n-th the client may have written.
		left := n
		for hop := range fromRight(r.Header[forwardedFor], lastComma) {
			if left--; left > 0 {
				continue
			}
			if addr, ok := parseAddr(hop); ok {
				return addrKey(addr), nil
			}
			break
		}

		// Fewer entries than proxies: the request came another way, and none of them is to be believed.
		peer := peerAddr(r)
		if left > 0 && left < n && nearby(peer) {
			reportProxy(r, peer, forwardedFor, fmt.Sprintf("has %d hops fewer than keyfunc.TrustedHops(%d) reads", left, n), fmt.Sprintf("keyfunc.TrustedHops(%d)", n-left))
		}
		return addrKey(peer), nil
	}
}

// AddrHeader counts by the address in a header with a single address, as some proxies and CDNs
// set it: X-Real-IP, CF-Connecting-IP.
//
//	keyfunc.AddrHeader("CF-Connecting-IP", cloudflare...)
//
// The header is read only if the peer is in one of the given networks. Otherwise, and if there is
// not exactly one address, the peer is counted. The proxy must overwrite the header on every
// request, or clients can choose the address; not all do by default.
func AddrHeader[P string | netip.Prefix](name string, prefixes ...P) Func {
	name = mustHeaderName("AddrHeader", name)
	switch name {
	case forwardedFor:
		panic("keyfunc.AddrHeader: X-Forwarded-For is a list that clients can start; use keyfunc.TrustedProxies or keyfunc.TrustedHops")
	case forwarded:
		panic("keyfunc.AddrHeader: Forwarded is a list that clients can start; use keyfunc.Forwarded")
	}
	trusted := mustNetworks("AddrHeader", prefixes)

	return func(r *http.Request) (string, error) {
		client, values := peerAddr(r), r.Header[name]
		if trusted.contain(client) {
			if len(values) == 1 { // a proxy that sets the header leaves one
				if addr, ok := parseAddr(values[0]); ok {
					client = addr
				}
			}
		} else if nearby(client) && len(values) > 0 {
			reportProxy(r, client, name, "keyfunc.AddrHeader reads only from the networks it lists", fmt.Sprintf("keyfunc.AddrHeader(%q, %q)", name, client))
		}
		return addrKey(client), nil
	}
}

// client returns the first address outside the networks: the peer, or a hop of the
// header from right to left. comma and parse read the hops; name is the key function's,
// for reports.
func (n networks) client(r *http.Request, header string, comma func(string) int, parse func(string) (netip.Addr, bool), name string) netip.Addr {
	client := peerAddr(r)
	if !n.contain(client) {
		if nearby(client) && len(r.Header[header]) > 0 {
			reportProxy(r, client, header, name+" reads only from the networks it lists", name+`("`+client.String()+`")`)
		}
		return client
	}

	// Each trusted hop vouches for the one before it; the first that is not trusted is the client.
	for hop := range fromRight(r.Header[header], comma) {
		addr, ok := parse(hop)
		if !ok {
			break
		}

		client = addr
		if !n.contain(addr) {
			break
		}
	}
	return client
}

// fromRight yields the elements of a comma-separated header from the last to the first,
// over all lines, which are one list (RFC 9110, section 5.3). comma returns the index of
// the comma before the last element, or -1. Elements are split off one by one, so most
// of a long header is not read.
func fromRight(lines []string, comma func(string) int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range slices.Backward(lines) {
			for {
				i := comma(line)
				if !yield(line[i+1:]) {
					return
				}
				if i < 0 {
					break
				}
				line = line[:i]
			}
		}
	}
}

// lastComma is comma for a list without quoted strings.
func lastComma(line string) int { return strings.LastIndexByte(line, ',') }
