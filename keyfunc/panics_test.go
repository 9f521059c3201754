package keyfunc_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A function that could not count as it should is not made: it panics with the value and what would be right.
func TestPanics(t *testing.T) {
	const (
		form     = ` is not a network; want "10.0.0.0/8", "2001:db8::/32" or one address`
		all      = " trusts every address, so that every client could choose its key; name the networks of your proxies"
		none     = `no prefixes; name the networks of your proxies, such as "10.0.0.0/8"`
		list     = "X-Forwarded-For is a list that clients can start; use keyfunc.TrustedProxies or keyfunc.TrustedHops"
		elements = "Forwarded is a list that clients can start; use keyfunc.Forwarded"
		header   = " is not the name of a header; want letters, digits and hyphens"
		methods  = `no methods; name the algorithms that your issuer signs with, such as "RS256"`
		word     = ` is not a word of lower-case letters, digits and hyphens; want one such as "user"`
	)

	id := func(key string) string { return key }
	owner := func(context.Context, string) (string, bool) { return "", false }
	type row struct {
		want string
		f    func()
	}
	var rows []row
	add := func(f func(string), want string, values ...string) {
		for _, v := range values {
			rows = append(rows, row{fmt.Sprintf(want, v), func() { f(v) }})
		}
	}

	proxies := func(prefix string) { keyfunc.TrustedProxies("192.0.2.0/24", prefix) }
	add(proxies, "keyfunc.TrustedProxies: %q"+form, "", "10.0.0/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0-10.0.0.9",
		"fe80::1%eth0", "fe80::%eth0/64", "proxy.example.com", "10.0.0.0/8, 10.1.0.0/8")
	add(proxies, "keyfunc.TrustedProxies: %q"+all, "0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96")
	add(proxies, "keyfunc.TrustedProxies: %q mixes IPv4 and IPv6; write the IPv4 network as such", "::ffff:10.0.0.0/95")
	add(func(name string) { keyfunc.AddrHeader(name, "10.0.0.0/8") }, "keyfunc.AddrHeader: %q"+header,
		"", "X Real IP", "X-Real-IP:", "X-Real-IP\r\n", "X-Réal-IP", "\x00", "a/b")
	add(func(name string) { keyfunc.APIKey(name, owner) }, "keyfunc.APIKey: %q"+header, "", "X API Key", "X-API-Key:")
	add(func(method string) { keyfunc.JWTSubject(secretKey, []string{method}) },
		`keyfunc.JWTSubject: method %q is not known to golang-jwt; want one such as "RS256"`, "", "None", "rs256", "RS-256")
	as := func(kind string) { keyfunc.As(kind, says("a"), id) }
	add(as, `keyfunc.As: kind %q is taken; want one of your own, such as "user"`, "ip", "sub", "key", "own", "route", "const", "join")
	add(as, "keyfunc.As: kind %q"+word, "", "user:", "User", "a|b", "a b", "ü")

	rows = append(rows,
		row{`keyfunc.TrustedProxies: "invalid Prefix"` + form, func() { keyfunc.TrustedProxies(netip.Prefix{}) }},
		row{`keyfunc.TrustedProxies: "0.0.0.0/0"` + all, func() { keyfunc.TrustedProxies(netip.PrefixFrom(netip.IPv4Unspecified(), 0)) }},
		row{"keyfunc.TrustedProxies: " + none, func() { keyfunc.TrustedProxies[string]() }},
		row{"keyfunc.Forwarded: " + none, func() { keyfunc.Forwarded[string]() }},
		row{`keyfunc.Forwarded: "0.0.0.0/0"` + all, func() { keyfunc.Forwarded("0.0.0.0/0") }},
		row{"keyfunc.AddrHeader: " + none, func() { keyfunc.AddrHeader[string]("X-Real-IP") }},
		row{`keyfunc.AddrHeader: "::/0"` + all, func() { keyfunc.AddrHeader("X-Real-IP", "::/0") }},
		row{"keyfunc.AddrHeader: " + list, func() { keyfunc.AddrHeader("x-forwarded-for", "10.0.0.0/8") }},
		row{"keyfunc.AddrHeader: " + elements, func() { keyfunc.AddrHeader("forwarded", "10.0.0.0/8") }},
		row{"keyfunc.TrustedHops: 0 entries; want 1 or more, or use RemoteAddr", func() { keyfunc.TrustedHops(0) }},
		row{"keyfunc.TrustedHops: -1 entries; want 1 or more, or use RemoteAddr", func() { keyfunc.TrustedHops(-1) }},
		row{"keyfunc.IPv6Prefix: 31 bits; want 32 to 64, such as 48 or 56", func() { keyfunc.IPv6Prefix(31, keyfunc.RemoteAddr) }},
		row{"keyfunc.IPv6Prefix: 65 bits; want 32 to 64, such as 48 or 56", func() { keyfunc.IPv6Prefix(65, keyfunc.RemoteAddr) }},
		row{"keyfunc.IPv6Prefix: key function 1 of 1 is nil", func() { keyfunc.IPv6Prefix(48, nil) }},
		row{"keyfunc.First: no key functions; want one or more", func() { keyfunc.First() }},
		row{"keyfunc.Join: no key functions; want one or more", func() { keyfunc.Join() }},
		row{"keyfunc.First: key function 2 of 2 is nil", func() { keyfunc.First(says("a"), nil) }},
		row{"keyfunc.Join: key function 1 of 2 is nil", func() { keyfunc.Join(nil, says("a")) }},
		row{"keyfunc.As: key function 1 of 1 is nil", func() { keyfunc.As("user", nil, id) }},
		row{"keyfunc.As: nil id; want a function that returns the text of the new key", func() { keyfunc.As("user", says("a"), nil) }},
		row{"keyfunc.Subject: nil function; want one that returns the identity in the context", func() { keyfunc.Subject(nil) }},
		row{"keyfunc.APIKey: nil owner; want a function that looks up the owner of a key", func() { keyfunc.APIKey("X-API-Key", nil) }},
		row{"keyfunc.JWTSubject: nil jwt.Keyfunc; want one that returns the key that tokens are signed with", func() { keyfunc.JWTSubject(nil, []string{"RS256"}) }},
		row{"keyfunc.JWTSubject: " + methods, func() { keyfunc.JWTSubject(secretKey, nil) }},
		row{`keyfunc.JWTSubject: method "none" lets every client write its own token; name the algorithms that your issuer signs with, such as "RS256"`,
			func() { keyfunc.JWTSubject(secretKey, []string{jwt.SigningMethodRS256.Name, "none"}) }})

	for _, r := range rows {
		func() {
			defer func() {
				if got := recover(); got != r.want {
					t.Errorf("got panic %v; want %s", got, r.want)
				}
			}()
			r.f()
		}()
	}
}
