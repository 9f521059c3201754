package pattern

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLength is the longest pattern in bytes: longer than any real route, and cheap to parse.
const maxLength = 1024

// validate returns an error for a pattern that a ServeMux accepts but that matches no request: with
// invisible characters, with a query or fragment, or with an impossible host.
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
			return fmt.Errorf("%+q at offset %d is white space or cannot be printed; in a path write %s",
				char, offset, percent(char))
		}
		offset += size
	}
	if path == "" {
		return nil // the ServeMux rejects it
	}
	if i := strings.IndexFunc(host, notOfHost); i >= 0 {
		return fmt.Errorf("the text before the first slash is a host, which cannot contain %q", host[i:i+1])
	}
	if host != "" && bareHost(host) == "" {
		return fmt.Errorf("the text before the first slash is a host, which %q is not", host)
	}
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		char := path[i : i+1]
		return fmt.Errorf("a path ends before %q; in a path write %s", char, percent(char))
	}
	return nil
}

// visible reports whether a decoded character can be seen in a terminal or an editor.
func visible(c rune, size int) bool {
	return c != ' ' && unicode.IsPrint(c) && (c != utf8.RuneError || size > 1)
}

// notOfHost reports whether a character cannot be part of the host in a Host field.
func notOfHost(c rune) bool {
	return c >= utf8.RuneSelf || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(".-:[]_", c)
}
