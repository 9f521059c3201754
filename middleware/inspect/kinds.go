package inspect

import (
	"cmp"
	"slices"
	"strings"
)

// kinds are what a key is made of: the kind of the key, or those of the first parts of a
// joined one. The rest are empty.
type kinds [4]string

// The kinds of keys without a prefix.
const (
	anonymous = "anonymous"
	other     = "other"
)

// kindWords are what the page calls the kinds of package keyfunc. Others are shown as they are.
var kindWords = map[string]string{
	"ip": "address", "sub": "user", "key": "API key", "own": "KeyFrom", "route": "route", "const": "a constant",
	anonymous: "nothing (anonymous)", other: "keys without a kind",
}

// kindsOf returns the kinds of a subject, without allocating.
func kindsOf(subject string) (k kinds) {
	parts, more := strings.CutPrefix(subject, "join:")
	if !more {
		return kinds{kindOf(subject)}
	}

	for i := 0; more && i < len(k); i++ {
		var part string
		part, parts, more = strings.Cut(parts, "|")
		k[i] = kindOf(part)
	}
	return k
}

// String returns "ip", or "ip and route".
func (k kinds) String() string {
	return strings.Join(slices.DeleteFunc(k[:], func(kind string) bool { return kind == "" }), " and ")
}

// words returns "address and route" for "ip and route".
func words(kinds string) string {
	all := strings.Split(kinds, " and ")
	for i, kind := range all {
		all[i] = cmp.Or(kindWords[kind], kind)
	}
	return strings.Join(all, " and ")
}

// notOfKind reports whether c is not a character of a kind, as in keyfunc.As.
func notOfKind(c rune) bool { return (c < 'a' || 'z' < c) && (c < '0' || '9' < c) && c != '-' }

// kindOf returns the prefix of a key: a word of lower-case letters, digits and hyphens
// before a colon. Any other beginning may be a name or an address, which is not kept.
func kindOf(key string) string {
	if key == "" {
		return anonymous
	}
	kind, _, found := strings.Cut(key, ":")
	if !found || len(kind) > 16 || kind == "" || kind[0] < 'a' || strings.ContainsFunc(kind, notOfKind) {
		return other
	}
	return kind
}
