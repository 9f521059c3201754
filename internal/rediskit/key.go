package rediskit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

// maxKeyPart is the largest length in bytes of an escaped subject or policy in a key. A longer one is
// hashed.
const maxKeyPart = 64

// AppendKey appends the Redis key of a bucket: <prefix>{<subject>}:<policy>. The braces make the
// subject the hash tag, so that all policies of a subject are in one slot of a cluster.
//
// Different pairs have different keys, since neither part contains a brace and escape is injective.
func AppendKey(b []byte, prefix, subject, policy string) []byte {
	b = append(b, prefix...)
	b = append(b, '{')
	b = escape(b, subject)
	b = append(b, '}', ':')
	return escape(b, policy)
}

// escape appends s with braces, percent signs, tildes, spaces and control bytes as %XX. The empty string
// becomes "%", since Redis ignores an empty hash tag. A result longer than maxKeyPart becomes "%#"
// and 128 bits of the SHA-256 of s. No other string gives these results.
func escape(b []byte, s string) []byte {
	if s == "" {
		return append(b, '%')
	}
	if len(s) > maxKeyPart {
		return hashed(b, s)
	}

	start := len(b)
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c == '%' || c == '~' || c == '{' || c == '}' || c == 0x7f {
			const digits = "0123456789ABCDEF"
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}

	// Each escape adds two bytes, so the length is known only now.
	if len(b)-start > maxKeyPart {
		return hashed(b[:start], s)
	}
	return b
}

func hashed(b []byte, s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return hex.AppendEncode(append(b, '%', '#'), sum[:16])
}

// ParseKey returns what the key of a bucket names: its subject, its policy and, for a quota, its
// calendar, such as "month15.Europe/Berlin". ok is false for other keys. A part that is hashed
// is returned as it is in the key, "%#" and 32 digits, which no part is that is not hashed.
func ParseKey(prefix, key string) (subject, policy, calendar string, ok bool) {
	rest, isOurs := strings.CutPrefix(key, prefix+"{")
	tag, name, isBucket := strings.Cut(rest, "}:")
	if !isOurs || !isBucket {
		return "", "", "", false
	}

	name, calendar, isQuota := strings.Cut(name, "~")
	if isQuota && (calendar == "" || strings.Contains(calendar, "reported.")) { // what a server has charged late
		return "", "", "", false
	}

	subject, ok1 := unescape(tag)
	policy, ok2 := unescape(name)
	return subject, policy, calendar, ok1 && ok2
}

// unescape is the inverse of escape, but leaves a hash as it is.
func unescape(s string) (string, bool) {
	if s == "%" {
		return "", true
	}
	if strings.HasPrefix(s, "%#") {
		return s, true
	}
	text, err := url.PathUnescape(s)
	return text, err == nil && s != ""
}

// Time returns the time that the value of a bucket means: ticks of 100 ns since 2025.
func Time(ticks int64) time.Time {
	const epoch, second = 1735689600, 10_000_000
	return time.Unix(epoch+ticks/second, ticks%second*100)
}
