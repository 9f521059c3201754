package keyfunc

import (
	"net/http"
	"net/netip"
	"strings"
)

// Forwarded counts the client as proxies in the given networks report it in the
// for parameter of the Forwarded header (RFC 7239). The keys are those of
// [RemoteAddr].
//
//	keyfunc.Forwarded("10.0.0.0/8", "2001:db8:1::/48")
//
// The trust model is that of [TrustedProxies]: the peer is looked at first, and
// if it is in one of the networks, the elements are walked from the last to the
// first over all lines of the header. The first address outside the networks
// is the client. X-Forwarded-For is not read.
//
// The walk stops at an element without an address: for=unknown, for=_x, no for,
// two for, an empty or malformed element. The client is then the hop after it,
// or the peer at the end of the header. Beyond the RFC, an address needs no
// quotes and an IPv6 address no brackets, and there may be blanks around ";".
//
// Each proxy appends an element, so the header is also read from its end, quotes
// included: a quote that a client has left open in its part does not reach into
// the elements that proxies have appended to it. For a header that is
// well-formed the direction makes no difference.
//
// The proxies must not copy what a client sends (such as Host) into an element
// without escaping it, or clients write elements of their own.
//
// Forwarded panics on the prefixes that [TrustedProxies] panics on.
func Forwarded[P string | netip.Prefix](prefixes ...P) Func {
	trusted := mustNetworks("Forwarded", prefixes)
	return func(r *http.Request) (string, error) {
		client := trusted.client(r, forwarded, lastUnquotedComma, parseElement, "keyfunc.Forwarded")
		if len(r.Header[forwarded]) == 0 && nearby(client) && len(r.Header[forwardedFor]) > 0 {
			reportProxy(r, client, forwardedFor, "keyfunc.Forwarded does not read", trustedProxies(client))
		}
		return addrKey(client), nil
	}
}

// lastUnquotedComma finds the comma before the last element of a list, reading
// from the end. The end is not within quotes, as a proxy wrote it. If the last
// element has a quote without a partner, the rest of the line is that element.
func lastUnquotedComma(line string) int {
	for {
		i := strings.LastIndexAny(line, `,"`)
		if i < 0 || line[i] == ',' {
			return i
		}
		line = line[:openingQuote(line[:i])]
	}
}

// openingQuote finds the quote that begins the quoted-string whose content ends
// s: the last one that is not escaped. It is 0 if there is none.
func openingQuote(s string) int {
	for {
		i := strings.LastIndexByte(s, '"')
		if i < 0 {
			return 0
		}
		before := strings.TrimRight(s[:i], `\`)
		if (i-len(before))%2 == 0 {
			return i
		}
		s = before
	}
}

// parseElement reads the address in the for parameter of one element:
//
//	forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] )
//	forwarded-pair    = token "=" ( token / quoted-string )
//
// It fails if there is no address or the element is not well-formed.
func parseElement(element string) (netip.Addr, bool) {
	var node string
	found := false
	for more := true; more; {
		element = strings.TrimLeft(element, " \t")
		if element == "" {
			break
		}
		if element[0] == ';' { // an empty pair
			element = element[1:]
			continue
		}
		name, rest, ok := strings.Cut(element, "=")
		if !ok || !isToken(name) {
			return netip.Addr{}, false
		}
		var value string
		if value, rest, ok = cutValue(rest); !ok {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, false
			}
			node, found = value, true
		}
		rest = strings.TrimLeft(rest, " \t")
		if element, more = strings.CutPrefix(rest, ";"); !more && rest != "" {
			return netip.Addr{}, false
		}
	}
	return parseNode(node)
}

// cutValue takes the value, a token or a quoted-string, off the front of s. The
// token may have the characters of an address too.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}
		value = s[:end]
		return value, s[end:], value != "" && !strings.ContainsFunc(value, func(c rune) bool {
			return !isTokenChar(c) && !strings.ContainsRune("[]:", c)
		})
	}
	escaped := false
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if value = s[1:i]; escaped {
				value = unquote(value)
			}
			return value, s[i+1:], true
		case c == '\\':
			escaped = true
			i++
		case c < ' ' && c != '\t' || c == 0x7f:
			return "", "", false
		}
	}
	return "", "", false
}

// unquote takes the backslashes of quoted-pairs out of a quoted-string.
func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseNode reads a node (RFC 7239, section 6) that is an address, with a port
// or without. The port may be an obfuscated one.
func parseNode(node string) (netip.Addr, bool) {
	if host, port, ok := strings.Cut(node, ":_"); ok {
		if port == "" || strings.ContainsFunc(port, notObfuscated) {
			return netip.Addr{}, false
		}
		node = host
	}
	return parseAddr(node)
}

// notObfuscated reports that an obfuscated identifier has no such character
// (RFC 7239, section 6.3).
func notObfuscated(c rune) bool {
	return !isTokenChar(c) || strings.ContainsRune("!#$%&'*+^`|~", c)
}
