package subject

import (
	"slices"
	"strings"
)

// Kinds are what a key is made of: the kind of the key, or the kinds of the first parts of a
// joined one. The rest are empty.
type Kinds [4]string

// The kinds of keys without a prefix.
const (
	Anonymous = "anonymous"
	Other     = "other"
)

// KindsOf returns the kinds of a subject, without allocating.
func KindsOf(subject string) (k Kinds) {
	parts, more := strings.CutPrefix(subject, "join:")
	if !more {
		return Kinds{kindOf(subject)}
	}

	for i := 0; more && i < len(k); i++ {
		var part string
		part, parts, more = strings.Cut(parts, "|")
		k[i] = kindOf(part)
	}
	return k
}

// String returns "ip", or "ip and route".
func (k Kinds) String() string {
	return strings.Join(slices.DeleteFunc(k[:], func(kind string) bool { return kind == "" }), " and ")
}

// notOfKind reports whether c is not a character of a kind, as in keyfunc.As.
func notOfKind(c rune) bool { return (c < 'a' || 'z' < c) && (c < '0' || '9' < c) && c != '-' }

// kindOf returns the prefix of a key: a word of lower-case letters, digits and hyphens
// before a colon. Any other beginning may be a name or an address, which is not kept.
func kindOf(key string) string {
	if key == "" {
		return Anonymous
	}
	kind, _, found := strings.Cut(key, ":")
	if !found || len(kind) > 16 || kind == "" || kind[0] < 'a' || strings.ContainsFunc(kind, notOfKind) {
		return Other
	}
	return kind
}
