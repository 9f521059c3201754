package pattern

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLength is more than a route has, and little to take apart.
const maxLength = 1024

// spelled finds what a ServeMux takes without a word, and what then matches no
// request: text that belongs elsewhere, or that cannot be seen to be there.
func validate(s string) error {
	if len(s) > maxLength {
		return fmt.Errorf("it has %d bytes; want at most %d", len(s), maxLength)
	}
	method, host, path := split(s)
	offset := 0
	if method != "" {
		offset = len(s) - len(host) - len(path)
	}
	for offset < len(s) {
		c, size := utf8.DecodeRuneInString(s[offset:])
		if char := s[offset : offset+size]; !visible(c, size) {
			return fmt.Errorf("%+q at offset %d is white space or cannot be printed; a path that has it is written with %s",
				char, offset, percent(char))
		}
		offset += size
	}
	if path == "" {
		return nil // which the ServeMux refuses
	}
	if i := strings.IndexFunc(host, notOfHost); i >= 0 {
		return fmt.Errorf("what stands before the first slash is a host, which has no %q", host[i:i+1])
	}
	if host != "" && bareHost(host) == "" {
		return fmt.Errorf("what stands before the first slash is a host, which %q is not", host)
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		char := path[i : i+1]
		return fmt.Errorf("a path ends before %q; one that has it is written with %s", char, percent(char))
	}
	return nil
}

// visible reports that a character, as it was decoded, shows where it stands.
func visible(c rune, size int) bool {
	return c != ' ' && unicode.IsPrint(c) && (c != utf8.RuneError || size > 1)
}

// notOfHost reports that a character stands in no Host field that a server
// takes, or in none that names a host.
func notOfHost(c rune) bool {
	return c >= utf8.RuneSelf || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(".-:[]_", c)
}
