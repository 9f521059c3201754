package keyfunc

import "strings"

// escaper escapes the separator of encode.
var escaper = strings.NewReplacer("%", "%25", "|", "%7C")

// encode joins the parts to a key of the given kind. It is injective: the separator and
// the escape character are escaped in the parts.
//
//	encode("join:", "a|b", "") == "join:a%7Cb|"
//
// Other bytes stay as they are; a store escapes and shortens keys by itself.
func encode(kind string, parts ...string) string {
	var buf [128]byte // on the stack: the key is the only allocation
	b := append(buf[:0], kind...)
	for i, part := range parts {
		if i > 0 {
			b = append(b, '|')
		}
		b = append(b, escaper.Replace(part)...)
	}
	return string(b)
}
