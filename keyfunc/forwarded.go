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

// TrustedProxies counts the client as proxies in the given networks report it
// in X-Forwarded-For. The keys are those of [RemoteAddr].
//
//	keyfunc.TrustedProxies("10.0.0.0/8", "2001:db8:1::/48")
//
// The peer is looked at first: if it is in none of the networks it is the
// client, and the header, which it may have made up, is not read. Otherwise the
// hops are walked from the last to the first over all lines of the header, as
// each proxy appends the one that connected to it, and the first hop outside
// the networks is the client. What stands before it was written by that client
// and is not looked at.
//
// A hop that is not an address stops the walk, as whatever wrote it is no proxy
// to believe; the client is then the hop after it, at the start the peer. That
// goes for an empty hop as well. If all hops are in the networks, the first one
// is the client. A missing header leaves the peer, so that a client that has it
// removed ("Connection: X-Forwarded-For") shares the bucket of the proxy.
//
// List every proxy that a request passes, and nothing else: a network that also
// holds clients lets these write their own keys. A peer without an address, as
// on a Unix socket, is in no network and is anonymous: use
// [TrustedHops] there.
//
// Prefixes are texts or netip.Prefix values; a text may also be one address.
// TrustedProxies panics if there are none, if one cannot be read, and if one
// has no bits ("0.0.0.0/0"), as that trusts everybody.
func TrustedProxies[P string | netip.Prefix](prefixes ...P) Func {
	trusted := mustNetworks("TrustedProxies", prefixes)
	return func(r *http.Request) (string, error) {
		return addrKey(trusted.client(r, forwardedFor, lastComma, parseAddr, "keyfunc.TrustedProxies")), nil
	}
}

// TrustedHops counts the client as reported by the first of n proxies that each
// append one hop to X-Forwarded-For: the n-th hop from the right, over all
// lines of the header. The keys are those of [RemoteAddr]. With one load
// balancer in front n is 1, with a CDN before it 2.
//
// It trusts whoever connects, and it is only as good as the count: use it where
// the addresses of the proxies are not known, and where nobody can reach this
// server but through all n of them. With n too high, or past the proxies,
// clients write their own keys; with n too low, all count as one proxy. Where
// the networks are known [TrustedProxies] is the better choice.
//
// If there are fewer hops, or the one in question is empty or not an address,
// the peer is counted. TrustedHops panics if n is less than 1.
func TrustedHops(n int) Func {
	if n < 1 {
		panic(fmt.Sprintf("keyfunc.TrustedHops: %d proxies; want 1 or more, or use RemoteAddr", n))
	}
	return func(r *http.Request) (string, error) {
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
		peer, _ := parseAddr(r.RemoteAddr)
		if left > 0 && left < n && nearby(peer) {
			reportProxy(r, peer, forwardedFor, fmt.Sprintf("has %d hops fewer than keyfunc.TrustedHops(%d) reads", left, n), fmt.Sprintf("keyfunc.TrustedHops(%d)", n-left))
		}
		return addrKey(peer), nil
	}
}

// Header counts the address in a header that holds just one, as some proxies
// and CDNs set it: X-Real-IP, CF-Connecting-IP. The keys are those of
// [RemoteAddr].
//
//	keyfunc.Header("CF-Connecting-IP", cloudflare...)
//
// The header is believed only if the peer is in one of the given networks. If
// it is not, and if the header is missing, occurs twice or holds anything but
// an address, the peer is counted.
//
// The proxy must set the header on every request whatever the client has sent.
// Some names look the part but are passed on from the client by default
// (True-Client-IP at Akamai, Fastly-Client-IP, X-Azure-ClientIP).
//
// Header panics if the name is not that of a header, if it is that of a list
// (X-Forwarded-For, Forwarded), and on the prefixes that [TrustedProxies]
// panics on.
func Header[P string | netip.Prefix](name string, prefixes ...P) Func {
	name = mustHeaderName("Header", name)
	switch name {
	case forwardedFor:
		panic("keyfunc.Header: X-Forwarded-For is a list that clients can start; use keyfunc.TrustedProxies or keyfunc.TrustedHops")
	case forwarded:
		panic("keyfunc.Header: Forwarded is a list that clients can start; use keyfunc.Forwarded")
	}
	trusted := mustNetworks("Header", prefixes)
	return func(r *http.Request) (string, error) {
		client, _ := parseAddr(r.RemoteAddr)
		if trusted.contain(client) {
			if addr, ok := parseAddr(onlyValue(r, name)); ok {
				client = addr
			}
		} else if nearby(client) && len(r.Header[name]) > 0 {
			reportProxy(r, client, name, "keyfunc.Header reads only from the networks it lists", fmt.Sprintf("keyfunc.Header(%q, %q)", name, client))
		}
		return addrKey(client), nil
	}
}

// client walks from the peer over the hops in a header, of which parse reads
// one, to the first that is not in the networks. It does so for the key function
// of that name.
func (n networks) client(r *http.Request, header string, comma func(string) int, parse func(string) (netip.Addr, bool), name string) netip.Addr {
	client, _ := parseAddr(r.RemoteAddr)
	if !n.contain(client) {
		if nearby(client) && len(r.Header[header]) > 0 {
			reportProxy(r, client, header, name+" reads only from the networks it lists", name+`("`+client.String()+`")`)
		}
		return client
	}
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

// fromRight yields the elements of a comma-separated header from the last to
// the first, the lines being one list (RFC 9110, section 5.3). comma finds the
// comma before the last element, or -1. It splits off one at a time: most of a
// long header is never looked at.
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

// lastComma finds the last element of a list without quotes.
func lastComma(line string) int { return strings.LastIndexByte(line, ',') }
