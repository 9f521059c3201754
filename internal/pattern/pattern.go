// Package pattern parses route patterns in the syntax of [net/http.ServeMux] and matches them
// against routes and request paths. A policy's Routes are such patterns.
//
// For a limiter a wrong match is safer than a missed one. So a pattern matches each request that a
// [net/http.ServeMux] would route to it, and other spellings of the path ([Pattern.MatchURL]).
//
// [Parse] reads a pattern that a user wrote and reports mistakes (validate.go, typos.go).
// [FromRouter] reads a route that a router reports. [FromTemplate] converts a route template of
// gin or echo (template.go). Cache holds what was computed for a route (cache.go).
package pattern

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
)

// Pattern is a route pattern: "[METHOD ][HOST]/[PATH]".
type Pattern struct {
	method   string // "" is every method
	host     string // "" is every host
	segments []segment
	rest     bool // matches all paths below: "/static/", "/files/{path...}"
	fixed    bool // matches one path only
}

// segment is the text between two slashes.
type segment struct {
	text string // decoded
	wild bool   // "{id}": any text
}

// Parse reads a pattern that a user wrote, as a ServeMux does, and returns an error where the
// ServeMux would panic. It also takes the wildcards of gin and echo: ":id", "*path" and "*".
//
// It is stricter than a ServeMux and rejects patterns that match no request:
//
//   - a host without a dot or a port, or with characters other than letters, digits and ".-:[]_"
//   - a method in lower case, or one with a typo
//   - a "*" at the end of a word, and "?" or "#" in a path
//   - white space or unprintable characters, except between method and path
//   - a pattern of more than 1024 bytes
//
// A path may contain all of these characters percent-encoded. The error says what would be right.
func Parse(s string) (*Pattern, error) {
	if err := regexpWildcard(s); err != nil {
		return nil, err
	}
	if err := validate(s); err != nil {
		return nil, fmt.Errorf("%w; %s", err, wantPattern)
	}
	if err := typo(s); err != nil {
		return nil, err
	}
	method, host, path := split(s)
	used := names{}
	segments := strings.Split(path, "/")
	for i, seg := range segments {
		if name, multi, ok := parameter(seg); ok {
			segments[i] = used.wildcard(name, multi)
		}
	}
	converted := host + strings.Join(segments, "/")
	// A ServeMux rejects "//" and "/../", which never match, only in patterns with a method.
	err := check(http.MethodGet + " " + converted)
	converted = join(method, converted)
	if err == nil {
		err = check(converted)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, wantPattern)
	}
	return FromRouter(converted), nil
}

const wantPattern = `want a pattern such as "POST /login"`

// check registers the pattern in a ServeMux, which panics on mistakes, and returns the cause. It
// drops the rest of the message: pattern and offset there are not those that the user wrote.
func check(s string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			var ok bool
			if err, ok = v.(error); !ok {
				err = fmt.Errorf("%v", v)
			}
			for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(err) {
				err = cause
			}
		}
	}()
	http.NewServeMux().Handle(s, http.NotFoundHandler())
	return nil
}

// FromRouter reads a route that a router reports, in the syntax of ServeMux or chi. It accepts
// every string. A route that it does not understand is not fixed, and no pattern covers it.
func FromRouter(s string) *Pattern {
	p := &Pattern{fixed: true}
	var path string
	p.method, p.host, path = split(s)
	if path == "" {
		return &Pattern{rest: true}
	}
	for more := true; more; {
		var seg string
		seg, path, more = strings.Cut(path[1:], "/")
		path = "/" + path
		switch {
		case seg == "" && !more, seg == "*", strings.HasPrefix(seg, "{") && strings.HasSuffix(seg, "...}"):
			p.rest, p.fixed = true, false
			return p
		case seg == "{$}":
			return p
		case seg == "", strings.HasPrefix(seg, "{") && strings.IndexByte(seg, '}') == len(seg)-1:
			p.segments = append(p.segments, segment{wild: true})
			p.fixed = false
		default:
			// A parameter inside a segment ("user_:name", "{a}-{b}") stays text. The route
			// is then not fixed, so that the request's path is compared too.
			p.fixed = p.fixed && !strings.ContainsAny(seg, ":*{")
			p.segments = append(p.segments, segment{text: unescape(seg)})
		}
	}
	return p
}

func split(s string) (method, host, path string) {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		method, s = s[:i], strings.TrimLeft(s[i+1:], " \t")
	}
	i := strings.IndexByte(s, '/')
	if i < 0 {
		return method, s, ""
	}
	return method, s[:i], s[i:]
}

// unescape decodes s, or returns it as it is if it is not valid percent-encoding.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// Open reports whether the pattern matches all paths below it, as "/static/" does. The empty
// pattern, for a request without a route, is open too. The handler of an open route may itself be
// a router.
func (p *Pattern) Open() bool { return p.rest }

// Fixed reports whether the pattern matches one path only, so that the route alone says which path
// was requested.
func (p *Pattern) Fixed() bool { return p.fixed }

// MatchMethod reports whether the pattern matches the method. As in a ServeMux, GET matches HEAD.
func (p *Pattern) MatchMethod(method string) bool {
	return p.method == "" || strings.EqualFold(p.method, method) ||
		strings.EqualFold(p.method, http.MethodGet) && strings.EqualFold(method, http.MethodHead)
}

// MatchHost reports whether the pattern matches a Host field. Case, port and a trailing dot do not
// matter.
func (p *Pattern) MatchHost(host string) bool {
	return p.host == "" || strings.EqualFold(bareHost(p.host), bareHost(host))
}

// SameHost reports whether every host of the route matches the pattern.
func (p *Pattern) SameHost(route *Pattern) bool {
	return p.host == "" || route.host != "" && p.MatchHost(route.host)
}

// bareHost removes port and brackets as a ServeMux does, also from "[example.com]:".
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// Covers reports whether the pattern matches every path of the route: "/users/{id}" covers
// "/users/{name}" and "/users/me", "/static/" covers "/static/css/{file}". It does not compare
// methods and hosts.
func (p *Pattern) Covers(route *Pattern) bool {
	if len(route.segments) < len(p.segments) {
		return false
	}
	for i, seg := range p.segments {
		other := route.segments[i]
		if !seg.wild && (other.wild || !strings.EqualFold(seg.text, other.text)) {
			return false
		}
	}
	return p.rest || !route.rest && len(route.segments) == len(p.segments)
}

// MatchURL reports whether the pattern matches the URL's path in any way that a router may read
// it: decoded before or after splitting, with or without path cleaning ("//", "/../"), in upper or
// lower case, with or without a trailing slash, with or without parameters (";x") after a segment.
//
// With greedy a wildcard at the end matches several segments, as in echo, where "/search/:q" serves
// /search/a/b.
func (p *Pattern) MatchURL(u *url.URL, greedy bool) bool {
	return p.matchPath(u.Path, false, greedy) || p.matchPath(path.Clean(u.Path), false, greedy) ||
		u.RawPath != "" && (p.matchPath(u.RawPath, true, greedy) || p.matchPath(path.Clean(u.RawPath), true, greedy))
}

func (p *Pattern) matchPath(path string, escaped, greedy bool) bool {
	rest, more := strings.TrimPrefix(path, "/"), true
	for _, want := range p.segments {
		if !more {
			return false
		}
		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		if escaped {
			seg = unescape(seg)
		}
		if !want.matches(seg, more) {
			return false
		}
	}
	if n := len(p.segments); greedy && n > 0 && p.segments[n-1].wild {
		return true
	}
	return p.rest || strings.Trim(rest, "/") == ""
}

// matches compares one segment. A wildcard between two slashes may be empty, as in chi and echo; at
// the end of the path it may not.
func (s segment) matches(seg string, more bool) bool {
	if s.wild {
		return seg != "" || more
	}
	name, _, _ := strings.Cut(seg, ";")
	return strings.EqualFold(seg, s.text) || strings.EqualFold(name, s.text)
}
