package policyfile

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// overrides are the limits of single keys and networks.
type overrides struct {
	keys     map[string]gcra.Limit
	networks networks
}

// find is [middleware.Policy.Override]. The name is the subject of the file that the key
// matches.
func (o *overrides) find(subject string) (middleware.Override, bool) {
	if limit, ok := o.keys[subject]; ok {
		return middleware.Override{Limit: limit, Name: subject}, true
	}
	if n := o.networkOf(subject); n != nil {
		return middleware.Override{Limit: n.limit, Name: addrKind + n.String()}, true
	}
	return middleware.Override{}, false
}

func (o *overrides) networkOf(subject string) *network {
	if text, isAddr := strings.CutPrefix(subject, addrKind); isAddr && len(o.networks) > 0 {
		if prefix, ok := parseNetwork(text); ok {
			return o.networks.longest(prefix.Masked())
		}
	}
	return nil
}

const (
	addrKind          = "ip:" // of the keys of keyfunc's address functions
	overridesForm     = `a list such as [{limit: 1000/minute, subjects: ["sub:alice"]}]`
	overrideLimitForm = "a limit such as 1000/minute, or none"
	subjectsForm      = `a list of keys and networks such as ["sub:alice", "ip:198.51.100.0/24"]`
	clientBits        = 64 // of the network that an IPv6 client counts by; see keyfunc.RemoteAddr
)

// overridesReader reads the overrides of a policy.
type overridesReader struct {
	*entry
	keys     map[string]gcra.Limit
	networks map[netip.Prefix]gcra.Limit
	seen     map[string]position // where each subject is
}

func (e *entry) readOverrides(n ast.Node) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		e.errorf(n, "overrides is %s; want %s", describe(n), overridesForm)
		return
	}
	if len(list.Values) == 0 {
		e.errorf(n, "overrides is an empty list; want %s, or leave it out", overridesForm)
	}
	r := overridesReader{e, map[string]gcra.Limit{}, map[netip.Prefix]gcra.Limit{}, map[string]position{}}
	for _, n := range list.Values {
		n, ok := e.literal(n)
		if !ok {
			continue
		}
		if m, ok := e.asMapping(n, "an override", `its fields, such as {limit: 1000/minute, subjects: ["sub:alice"]}`); ok {
			r.override(m)
		}
	}
	o := overrides{r.keys, newNetworks(r.networks)}
	e.Override = o.find
}

// override reads one limit and its subjects.
func (r *overridesReader) override(m *ast.MappingNode) {
	wants := map[string]string{"limit": overrideLimitForm, "subjects": subjectsForm}
	values := map[string]ast.Node{}
	found := r.eachField(m, func(name string, key, value ast.Node) {
		want, known := wants[name]
		switch {
		case !known:
			r.errorf(key, "field %s is unknown; want %s", quoted(name), oneOf([]string{"limit", "subjects"}, name))
		case value != nil && isEmpty(value):
			r.errorf(key, "%s has no value; want %s", name, want)
		case value != nil:
			values[name] = value
		}
	})
	for _, name := range []string{"limit", "subjects"} {
		if _, ok := found[name]; !ok {
			r.errorf(m, "the override has no %s; want %s", name, wants[name])
		}
	}
	var limit gcra.Limit
	if n := values["limit"]; n != nil {
		limit = r.limit(n)
		if limit != gcra.Unlimited() {
			r.largestOverride = max(r.largestOverride, limit.Capacity())
		}
	}
	switch n := values["subjects"].(type) {
	case nil:
	case *ast.SequenceNode:
		if len(n.Values) == 0 {
			r.errorf(n, "subjects is an empty list; want %s", subjectsForm)
		}
		for _, n := range n.Values {
			if n, ok := r.literal(n); ok {
				r.subject(n, limit)
			}
		}
	default:
		r.errorf(n, "subjects is %s; want %s", describe(n), subjectsForm)
	}
}

func (r *overridesReader) limit(n ast.Node) gcra.Limit {
	s, ok := stringValue(n)
	switch {
	case s == gcra.Unlimited().String():
		return gcra.Unlimited()
	case !ok || !strings.ContainsAny(s, "0123456789"):
		r.errorf(n, "limit is %s; want %s", describe(n), overrideLimitForm)
		return gcra.Limit{}
	}
	limit, _ := r.parseLimit(n, "limit")
	return limit
}

func (r *overridesReader) subject(n ast.Node, limit gcra.Limit) {
	s, ok := stringValue(n)
	if !ok || s == "" {
		r.errorf(n, `subjects has %s; want a key in quotes such as "sub:alice"`, describe(n))
		return
	}
	prefix, isNetwork, err := parseSubject(s)
	switch {
	case err != nil:
		r.errorf(n, "subject is %s: %v", quoted(s), err)
		return
	case isNetwork:
		s = addrKind + prefix.String()
	case prefix.IsValid():
		s = addrKind + prefix.Addr().String()
	}
	if before, twice := r.seen[s]; twice {
		r.errorf(n, "subject %s is repeated, it is first in line %d; want it once", quoted(s), before.line)
		return
	}
	r.seen[s] = nodePosition(n)
	if isNetwork {
		r.networks[prefix] = limit
	} else {
		r.keys[s] = limit
	}
}

// parseSubject returns the address or network that a subject is; the prefix is invalid
// for any other key. An address or a network that no key can be is an error.
func parseSubject(s string) (prefix netip.Prefix, isNetwork bool, err error) {
	text, isAddr := strings.CutPrefix(s, addrKind)
	prefix, ok := parseNetwork(text)
	isNetwork = strings.Contains(text, "/")
	switch {
	case !isAddr && ok && isNetwork:
		return prefix, false, fmt.Errorf("keys that are addresses begin with ip:; want %q", addrKind+prefix.Masked().String())
	case !isAddr:
		return netip.Prefix{}, false, nil
	case !ok:
		return prefix, false, errors.New(`want an address or a network such as "ip:192.0.2.7", "ip:198.51.100.0/24" or "ip:2001:db8::/64"`)
	}
	addr := prefix.Addr()
	switch {
	case addr.Is4In6() && prefix.Bits() >= 96:
		want := netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96).Masked()
		return prefix, false, fmt.Errorf("it is an IPv4 address in IPv6 form; want %q", addrKind+strings.TrimSuffix(want.String(), "/32"))
	case addr.Is6() && prefix.Bits() > clientBits:
		want := netip.PrefixFrom(addr, clientBits).Masked()
		return prefix, false, fmt.Errorf("IPv6 clients count by their /%d network; want %q", clientBits, addrKind+want.String())
	case prefix != prefix.Masked():
		return prefix, false, fmt.Errorf("the address has bits beyond its first %d; want %q, or %q", prefix.Bits(), addrKind+prefix.Masked().String(), addrKind+clientKey(addr))
	}
	return prefix, isNetwork && prefix.Bits() < addr.BitLen(), nil
}

// clientKey is what a client with that address counts by.
func clientKey(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, clientBits).Masked().String()
}

// parseNetwork parses a network, or an address as the network that has only this one.
func parseNetwork(text string) (netip.Prefix, bool) {
	if strings.Contains(text, "/") {
		prefix, err := netip.ParsePrefix(text)
		return prefix, err == nil
	}
	addr, err := netip.ParseAddr(text)
	return netip.PrefixFrom(addr.WithZone(""), addr.BitLen()), err == nil
}
