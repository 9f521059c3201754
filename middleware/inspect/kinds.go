package inspect

import (
	"cmp"
	"strings"
)

// The kinds of keys without a prefix.
const (
	anonymous = "anonymous"
	other     = "other"
)

// kindWords are what the page calls the kinds of package keyfunc. Others are shown as they are.
var kindWords = map[string]string{
	"ip": "address", "sub": "user", "key": "API key", "own": "KeyFrom", "route": "route", "const": "a constant",
	"join": "several joined keys", anonymous: "nothing (anonymous)", other: "keys without a kind",
}

// word returns "address" for "ip".
func word(kind string) string { return cmp.Or(kindWords[kind], kind) }

// ofKind are the characters of a kind, as in keyfunc.As.
const ofKind = "abcdefghijklmnopqrstuvwxyz0123456789-"

// kindOf returns the prefix of a key: a word of lower-case letters, digits and hyphens
// before a colon. Any other beginning may be a name or an address, which is not kept.
func kindOf(key string) string {
	if key == "" {
		return anonymous
	}
	kind, _, found := strings.Cut(key, ":")
	if !found || len(kind) > 16 || kind == "" || kind[0] < 'a' || strings.Trim(kind, ofKind) != "" {
		return other
	}
	return kind
}
