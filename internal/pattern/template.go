package pattern

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FromTemplate returns the ServeMux pattern of a route that gin or echo has registered for a
// method: "POST" and "/users/:id" give "POST /users/{id}". For a request without a route see [Templates].
//
//	/files/*path  becomes  /files/{path...}
//	/files/*      becomes  /files/{path...}
//	/static/      becomes  /static/{$}, since gin and echo match this path only
//	/user_:name   stays, since a ServeMux has no wildcard for a part of a segment
//
// Characters that are syntax in a ServeMux are percent-encoded. HEAD becomes GET. A method outside
// the nine of RFC 9110 and RFC 5789 gives a pattern without one, so that clients cannot increase
// the number of patterns.
func FromTemplate(method, template string) string {
	var b strings.Builder
	if method = Standard(method); method != "" {
		b.WriteString(method)
		b.WriteByte(' ')
	}

	for rest, more := strings.TrimPrefix(template, "/"), true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		b.WriteByte('/')

		switch {
		case wildcard(seg) != "":
			b.WriteString(wildcard(seg))
		case seg == "" && !more:
			b.WriteString("{$}")
		default:
			escape(&b, seg)
		}

		if strings.HasPrefix(seg, "*") {
			break // it is the last segment; echo ignores what follows
		}
	}

	return b.String()
}

// Standard returns the method in the pattern of a route: GET for HEAD, "" for a method outside the
// nine standard ones, and any other as it is.
func Standard(method string) string {
	switch {
	case method == http.MethodHead:
		return http.MethodGet
	case slices.Contains(methods, method):
		return method
	}
	return ""
}

// wildcard returns a wildcard of gin or echo as a ServeMux has it, with a Go identifier as its name unless that
// begins with a digit: ":user-id" is "{user_id}", and "*" is "{path...}". It returns "" for any other segment.
func wildcard(seg string) string {
	name := seg[min(1, len(seg)):]
	name = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return '_'
	}, cmp.Or(name, "path"))

	switch {
	case strings.HasPrefix(seg, ":"):
		return "{" + name + "}"
	case strings.HasPrefix(seg, "*"):
		return "{" + name + "...}"
	}
	return ""
}

// escape writes the segment and percent-encodes what [Parse] would read as syntax or reject.
func escape(b *strings.Builder, seg string) {
	for seg != "" {
		c, size := utf8.DecodeRuneInString(seg)
		switch {
		case strings.HasPrefix(seg, `\:`): // an escaped colon
		case !visible(c, size) || strings.ContainsRune("{}%?#", c):
			b.WriteString(percent(seg[:size]))
		default:
			b.WriteString(seg[:size])
		}
		seg = seg[size:]
	}
}

// percent percent-encodes every byte.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}
