package keyfunc

import "strings"

// escaper makes room for the separator of encode.
var escaper = strings.NewReplacer("%", "%25", "|", "%7C")

// encode writes one or more parts as a key of the given kind, so that different
// parts or a different number of them never give the same key: in its parts the
// separator is escaped, and so is the escape.
//
//	encode("join:", "a|b", "") == "join:a%7Cb|"
//
// All other bytes stay as they are: a store escapes and shortens keys for itself.
func encode(kind string, parts ...string) string {
	size := len(kind) + len(parts)
	for _, part := range parts {
		size += len(part)
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteString(kind)
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('|')
		}
		b.WriteString(escaper.Replace(part))
	}
	return b.String()
}
