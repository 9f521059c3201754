package keyfunc

import (
	"slices"
	"strings"
	"testing"
)

// decode is the inverse of encode, and so proves that encode is injective.
func decode(kind, key string) []string {
	parts := strings.Split(strings.TrimPrefix(key, kind), "|")
	for i := range parts {
		parts[i] = strings.NewReplacer("%7C", "|", "%25", "%").Replace(parts[i])
	}
	return parts
}

func FuzzEncode(f *testing.F) {
	for _, parts := range [][3]string{
		{"a", "b", "c"}, {"", "", ""}, {"|", "||", ""}, {"%", "%7C", "%257C"}, {"a|", "b", "|c"}, {"%7", "C", "%%25"},
		{"{a}", "\x00", "\r\n"}, {"\xff", ":", "join:a|b"},
	} {
		f.Add(parts[0], parts[1], parts[2])
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, parts := range [][]string{{a}, {a, b}, {a, b, c}, {a, "", c}} {
			key := encode("kind:", parts...)
			if got := decode("kind:", key); !slices.Equal(got, parts) {
				t.Errorf("encode(%q) = %q, which reads %q", parts, key, got)
			}
		}
	})
}
