package pattern

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FromTemplate returns the ServeMux pattern of a route that gin or echo has registered for a
// method: "POST" and "/users/:id" give "POST /users/{id}".
//
//	/files/*path  becomes  /files/{path...}
//	/files/*      becomes  /files/{path...}
//	/static/      becomes  /static/{$}, since gin and echo match this path only
//	/user_:name   stays, since a ServeMux has no wildcard for a part of a segment
//
// Characters that are syntax in a ServeMux are percent-encoded. HEAD becomes GET. A method outside
// the nine of RFC 9110 and RFC 5789 gives a pattern without one, so that clients cannot increase
// the number of patterns. The empty template, for a request without a route, gives "".
func FromTemplate(method, template string) string {
	if template == "" {
		return ""
	}

	var b strings.Builder
	if method = Standard(method); method != "" {
		b.WriteString(method)
		b.WriteByte(' ')
	}

	used := names{}
	for rest, more := strings.TrimPrefix(template, "/"), true; more; {
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		b.WriteByte('/')

		name, multi, ok := parameter(seg)
		switch {
		case ok:
			b.WriteString(used.wildcard(name, multi))
		case seg == "" && !more:
			b.WriteString("{$}")
		default:
			escape(&b, seg)
		}

		if multi {
			break // it is the last segment; echo ignores what follows
		}
	}

	return b.String()
}

// Standard returns the method in the pattern of a route: GET for HEAD, "" for a method outside the
// nine standard ones, and any other as it is.
func Standard(method string) string {
	switch method {
	case http.MethodHead:
		return http.MethodGet
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return ""
}

// parameter returns the name of a wildcard of gin or echo. multi means that it matches the rest of
// the path.
func parameter(seg string) (name string, multi, ok bool) {
	switch {
	case strings.HasPrefix(seg, ":"):
		return seg[1:], false, true
	case strings.HasPrefix(seg, "*"):
		return seg[1:], true, true
	}
	return "", false, false
}

// names are the wildcard names that one pattern has used, with the last number appended to each.
type names map[string]int

// wildcard returns "{name}" or "{name...}". It makes the name a Go identifier that is unique in the
// pattern, as a ServeMux requires.
func (n names) wildcard(name string, multi bool) string {
	name = strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return c
		}
		return '_'
	}, name)

	first, _ := utf8.DecodeRuneInString(name)
	switch {
	case name == "" && multi:
		name = "path"
	case name == "":
		name = "param"
	case unicode.IsDigit(first):
		name = "_" + name
	}

	// A ServeMux panics at a name that one pattern has twice.
	given := name
	for n[name] > 0 {
		n[given]++
		name = given + "_" + strconv.Itoa(n[given])
	}
	n[name] = 1

	if multi {
		return "{" + name + "...}"
	}
	return "{" + name + "}"
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
