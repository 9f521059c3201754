package rediskit

import (
	"crypto/sha256"
	"encoding/hex"
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
	if len(b)-start > maxKeyPart {
		return hashed(b[:start], s)
	}
	return b
}

func hashed(b []byte, s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return hex.AppendEncode(append(b, '%', '#'), sum[:16])
}
