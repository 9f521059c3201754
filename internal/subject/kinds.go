package subject

import "strings"

// MostParts is the number of parts of a joined key that [KindOf] names.
const MostParts = 4

// The kinds of keys without a prefix.
const (
	Anonymous = "anonymous"
	Other     = "other"
)

// KindOf returns what a key is made of: the kind of the key, such as "ip", or the kinds of the first
// parts of a joined one, such as "ip and route".
func KindOf(key string) string {
	parts, joined := strings.CutPrefix(key, "join:")
	if !joined {
		return kindOf(key)
	}

	kinds := strings.SplitN(parts, "|", MostParts+1)
	kinds = kinds[:min(len(kinds), MostParts)]
	for i := range kinds {
		kinds[i] = kindOf(kinds[i])
	}
	return strings.Join(kinds, " and ")
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
