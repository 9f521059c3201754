package keyfunc

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"
)

// Forwarded is [TrustedProxies] for the for parameter of the Forwarded header (RFC 7239).
//
//	keyfunc.Forwarded("10.0.0.0/8", "2001:db8:1::/48")
//
// Reading stops at an element that is malformed or has not one address. A quote that a client has
// left open does not affect what proxies append. The proxies must escape what they copy from the
// client into an element (such as Host), or clients can write elements.
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

// lastUnquotedComma returns the index of the comma before the last element of a list, or
// -1. It reads from the end, which a proxy wrote and which is not inside quotes. If the
// last element has an unpaired quote, the rest of the line is that element.
func lastUnquotedComma(line string) int {
	for {
		i := strings.LastIndexAny(line, `,"`)
		if i < 0 || line[i] == ',' {
			return i
		}
		line = line[:openingQuote(line[:i])]
	}
}

// openingQuote returns the index of the last unescaped quote, which begins the
// quoted-string that s ends in, or 0 if there is none.
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

// parseElement parses one element and returns the address in its for parameter:
//
//	forwarded-element = [ forwarded-pair ] *( ";" [ forwarded-pair ] )
//	forwarded-pair    = token "=" ( token / quoted-string )
//
// It returns false if there is no address or the element is malformed.
func parseElement(element string) (netip.Addr, bool) {
	const between = " \t;" // pairs, with empty ones
	var node string
	found := false
	for element = strings.TrimLeft(element, between); element != ""; {
		name, text, _ := strings.Cut(element, "=")
		value, rest, ok := cutValue(text)
		if !ok || !isToken(name) {
			return netip.Addr{}, false
		}

		// One of two may be the client's: neither counts.
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, false
			}
			node, found = value, true
		}

		element = strings.TrimLeft(rest, between)
		if separator := rest[:len(rest)-len(element)]; element != "" && !strings.Contains(separator, ";") {
			return netip.Addr{}, false
		}
	}
	return parseNode(node)
}

// cutValue cuts the value, a token or a quoted-string, off the front of s. The token may
// contain the characters of an address.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}

		// A token has no brackets or colons, but proxies send addresses without the quotes.
		value = s[:end]
		return value, s[end:], value != "" && !strings.ContainsFunc(value, func(c rune) bool {
			return !isTokenChar(c) && !strings.ContainsRune("[]:", c)
		})
	}

	// A quoted-string may have any text but controls, with a backslash in front of each quote.
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return unquote(s[1:i]), s[i+1:], true
		case c == '\\':
			i++
		case c < ' ' && c != '\t' || c == 0x7f:
			return "", "", false
		}
	}
	return "", "", false
}

var quotedPair = regexp.MustCompile(`(?s)\\(.)`)

// unquote removes the backslashes of quoted-pairs.
func unquote(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return quotedPair.ReplaceAllString(s, "$1")
}

// parseNode parses a node (RFC 7239, section 6) with an address, with or without a port,
// which may be obfuscated.
func parseNode(node string) (netip.Addr, bool) {
	if host, port, ok := strings.Cut(node, ":_"); ok {
		if port == "" || strings.ContainsFunc(port, notObfuscated) {
			return netip.Addr{}, false
		}
		node = host
	}
	return parseAddr(node)
}

// notObfuscated reports whether c is not a character of an obfuscated identifier
// (RFC 7239, section 6.3).
func notObfuscated(c rune) bool {
	return !isTokenChar(c) || strings.ContainsRune("!#$%&'*+^`|~", c)
}
