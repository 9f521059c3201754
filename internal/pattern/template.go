package pattern

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FromTemplate is the ServeMux pattern of a route that gin or echo registered
// for a method: "POST" and "/users/:id" give "POST /users/{id}".
//
//	/files/*path  becomes  /files/{path...}
//	/files/*      becomes  /files/{path...}
//	/static/      becomes  /static/{$}, for there it is that path alone
//	/user_:name   stays: a ServeMux has no word for a part of a segment
//
// What a ServeMux would read as syntax is percent-encoded. HEAD counts as GET,
// and a method outside the nine of RFC 9110 and RFC 5789 gives a pattern
// without one, so that the patterns of an application are bounded whatever its
// clients send. The empty template, no route, gives the empty pattern.
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
			break // nothing can follow, and echo lets nothing matter that does
		}
	}
	return b.String()
}

// Standard is the method by which a route is named: itself, GET for HEAD, or
// nothing if it is not one of the nine standard ones.
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

// parameter takes a segment in the manner of gin and echo apart.
func parameter(seg string) (name string, multi, ok bool) {
	switch {
	case strings.HasPrefix(seg, ":"):
		return seg[1:], false, true
	case strings.HasPrefix(seg, "*"):
		return seg[1:], true, true
	}
	return "", false, false
}

// names are the wildcard names used so far in one pattern, and how often each
// was asked for.
type names map[string]int

// wildcard is "{name}" or "{name...}", the name made an identifier that the
// pattern does not hold yet, as a ServeMux wants it.
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
	name = n.unique(name)
	if multi {
		return "{" + name + "...}"
	}
	return "{" + name + "}"
}

// unique is the name, or the name with the first number that makes it one that
// was not given yet.
func (n names) unique(name string) string {
	given := name
	for n[given] > 0 {
		n[name]++
		given = name + "_" + strconv.Itoa(n[name])
	}
	n[given] = 1
	return given
}

// escape writes the segment with nothing in it that [Parse] reads as syntax, or
// refuses.
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

// percent encodes every byte.
func percent(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		b.Write([]byte{'%', hex[s[i]>>4], hex[s[i]&15]})
	}
	return b.String()
}
