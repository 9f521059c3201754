package rediskit

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxKeyPart is the longest subject or policy, once escaped, that stands in a
// key as it is.
const maxKeyPart = 64

// AppendKey appends the Redis key of a bucket: <prefix>{<subject>}:<policy>.
// The braces make the subject the hash tag, so that all policies of one
// subject live in one slot of a cluster.
//
// Different pairs have different keys: neither part can contain a brace, and
// escape is injective.
func AppendKey(b []byte, prefix, subject, policy string) []byte {
	b = append(b, prefix...)
	b = append(b, '{')
	b = escape(b, subject)
	b = append(b, '}', ':')
	return escape(b, policy)
}

// escape appends s with braces, percent signs, spaces and control bytes
// written as %XX. What would be empty becomes "%" (an empty hash tag is none),
// and what would be longer than maxKeyPart becomes "%#" and 128 bits of its
// SHA-256; escaping produces neither otherwise.
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
		if c <= ' ' || c == '%' || c == '{' || c == '}' || c == 0x7f {
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
