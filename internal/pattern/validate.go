package pattern

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLength is the longest pattern in bytes: longer than any real route, and cheap to parse.
const maxLength = 1024

// methods are the nine of RFC 9110 and RFC 5789.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// typo returns an error for a pattern that was meant to be another one. A ServeMux accepts most of them.
func typo(method, host, path string) error {
	// QUERY, PROPFIND, PURGE and LINK are none.
	misspelt := !slices.Contains(methods, method) && slices.ContainsFunc(methods, func(m string) bool { return near(m, method) })
	star := strings.IndexByte(path, '*')
	switch {
	case misspelt, method != strings.ToUpper(method), strings.ContainsAny(method, "*,|/"), method == "ANY", method == "ALL":
		return fmt.Errorf("%q is not a method in upper case", method)
	case path == "":
		return errors.New(`it has no "/"`)
	case host != "" && !strings.ContainsAny(strings.TrimSuffix(host, ":"), ".:") && !strings.EqualFold(host, "localhost"):
		return fmt.Errorf("%q would be a host, which has a dot or a port", host)
	case star > 0 && path[star-1] != '/' && star < len(path)-1, strings.Contains(path, "/<"), strings.Contains(path, "/["), strings.Contains(path, "/("):
		return errors.New(`"*" stands only at the end, and {name} for a segment`)
	}
	return nil
}

// near reports whether one letter more, one less, another one, or two in the other order make a into b.
func near(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	swapped := len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
	return swapped || len(a) <= 1 && len(b) <= 1
}

// validate returns an error for a pattern that a ServeMux accepts but that matches no request: with
// invisible characters, with a query or fragment, or with an impossible host.
func validate(s string) error {
	if len(s) > maxLength {
		return fmt.Errorf("it has %d bytes; want at most %d", len(s), maxLength)
	}

	method, host, path := split(s)
	// The space behind a method is the only one that may be there.
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

	return typo(method, host, path)
}

// visible reports whether a decoded character can be seen in a terminal or an editor.
func visible(c rune, size int) bool {
	return c != ' ' && unicode.IsPrint(c) && (c != utf8.RuneError || size > 1)
}

// notOfHost reports whether a character cannot be part of the host in a Host field.
func notOfHost(c rune) bool {
	return c >= utf8.RuneSelf || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(".-:[]_", c)
}
