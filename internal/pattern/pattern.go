// Package pattern parses route patterns in the syntax of [net/http.ServeMux] and matches them
// against routes and request paths. A policy's Routes are such patterns.
//
// For a limiter a wrong match is safer than a missed one. So a pattern applies to each route whose
// requests it may be meant for ([Pattern.On]), and, where the route does not say enough, to every
// spelling of a path ([Pattern.MatchURL]).
//
// [Parse] reads a pattern that a user wrote and reports mistakes. [FromRouter] reads a route that a
// router reports. [FromTemplate] converts a route template of gin or echo, and [Templates] does so on
// every request. [Cache] holds what was computed for a route.
package pattern

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Pattern is a route pattern: "[METHOD ][HOST]/[PATH]".
type Pattern struct {
	method   string // "" is every method
	host     string // "" is every host
	segments []segment
	rest     bool // matches all paths below: "/static/", "/files/{path...}", "/static*"
	fixed    bool // matches one path only
}

// segment is the text between two slashes.
type segment struct {
	text string // decoded
	kind kind
}

type kind uint8

const (
	literal kind = iota // one text
	part                // text with a parameter in it: "user_:name", "{id}.json"
	prefix              // text that begins so, and all below: "static*", at the end only
	wild                // "{id}": any text
)

// Parse reads a pattern that a user wrote, as a ServeMux does, and returns an error where the
// ServeMux would panic. It also takes the wildcards of gin and echo: ":id", "*path" and "*", and
// "static*" for all paths that begin so.
//
// It is stricter than a ServeMux and rejects patterns that match no request:
//
//   - a host without a dot or a port, or with characters other than letters, digits and ".-:[]_"
//   - a method in lower case, or one with a typo
//   - a "*" before the end, and "?" or "#" in a path
//   - white space or unprintable characters, except between method and path
//   - a pattern of more than 1024 bytes
//
// A path may contain all of these characters percent-encoded.
func Parse(s string) (*Pattern, error) {
	if err := validate(s); err != nil {
		return nil, fmt.Errorf("%w; %s", err, wantPattern)
	}

	method, host, path := split(s)
	segments := strings.Split(path, "/")
	for i, seg := range segments {
		segments[i] = cmp.Or(wildcard(seg), seg)
	}

	// A ServeMux rejects "//" and "/../", which never match, only in patterns with a method.
	converted := host + strings.Join(segments, "/")
	if err := check(cmp.Or(method, http.MethodGet) + " " + converted); err != nil {
		return nil, fmt.Errorf("%w; %s", err, wantPattern)
	}

	p := FromRouter(converted)
	p.method = method
	return p, nil
}

const wantPattern = `want a pattern such as "POST /login"`

// check registers the pattern in a ServeMux, which panics on mistakes, and returns the cause. It
// drops the rest of the message, whose pattern and offset differ from what the user wrote.
func check(s string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = v.(error)
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
		seg, path, more = cutSegment(path[1:])
		path = "/" + path

		switch before, _, star := strings.Cut(seg, "*"); {
		case seg == "" && !more, seg == "*", strings.HasPrefix(seg, "{") && strings.HasSuffix(seg, "...}"):
			p.rest, p.fixed = true, false
			return p
		case seg == "{$}":
			return p
		case seg == "", strings.HasPrefix(seg, "{") && strings.HasSuffix(seg, "}"):
			p.segments = append(p.segments, segment{kind: wild})
			p.fixed = false
		case star: // echo ignores what follows
			p.segments = append(p.segments, segment{unescape(before), prefix})
			p.rest, p.fixed = true, false
			return p
		case strings.ContainsAny(seg, ":{"):
			p.segments = append(p.segments, segment{unescape(seg), part})
			p.fixed = false
		default:
			p.segments = append(p.segments, segment{unescape(seg), literal})
		}
	}
	return p
}

// cutSegment is strings.Cut at the first slash that is not in braces, as in chi's {id:[^/]+}.
func cutSegment(path string) (seg, rest string, more bool) {
	depth := 0
	for i := range len(path) {
		switch path[i] {
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth <= 0 {
				return path[:i], path[i+1:], true
			}
		}
	}
	return path, "", false
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
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// Open reports whether the pattern matches all paths below it, as "/static/" does. The empty
// pattern, for a request without a route, is open too. The handler of an open route may itself be
// a router.
func (p *Pattern) Open() bool { return p.rest }

// Mount reports whether the pattern is text and all paths below, as "/api/" is. What serves such a route may see the rest
// of the path alone, see [http.StripPrefix].
func (p *Pattern) Mount() bool {
	return p.rest && !slices.ContainsFunc(p.segments, func(s segment) bool { return s.kind != literal })
}

// Calls reports whether the pattern matches all methods, all of some services, or one: POST requests
// with the path "/package.Service/Method".
func (p *Pattern) Calls() bool {
	text := !slices.ContainsFunc(p.segments, func(s segment) bool { return s.kind == wild || s.kind == part })
	return p.host == "" && p.MatchMethod(http.MethodPost) && text && (len(p.segments) == 2 || p.rest && len(p.segments) < 2)
}

// MatchMethod reports whether the pattern matches the method. As in a ServeMux, GET matches HEAD.
func (p *Pattern) MatchMethod(method string) bool {
	return p.method == "" || strings.EqualFold(p.method, method) ||
		strings.EqualFold(p.method, http.MethodGet) && strings.EqualFold(method, http.MethodHead)
}

// AnyMethod reports whether the pattern matches every method.
func (p *Pattern) AnyMethod() bool { return p.method == "" }

// MatchMethodOf reports whether the pattern matches the route's method.
func (p *Pattern) MatchMethodOf(route *Pattern) bool { return p.MatchMethod(route.method) }

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

// Relation says whether a pattern applies to the requests of a route.
type Relation uint8

// The relations of a pattern and a route.
const (
	Never  Relation = iota
	Apart           // no, only because the route has text where the pattern has a parameter
	Always          // yes, to every request
	ByPath          // to those whose path matches, see MatchURL
)

// On returns the relation of the pattern and the route that serves a request. It does not compare
// methods and hosts.
//
// Text that a client fills in, on a parameter or below an open route, may be the pattern's, so the
// path decides. Text of the route in place of a parameter makes a route of its own.
func (p *Pattern) On(route *Pattern) Relation {
	covered, narrower := true, false
	for i, seg := range p.segments {
		at := segment{kind: wild} // beyond the route, if it is open
		if i < len(route.segments) {
			at = route.segments[i]
		}
		covered = covered && seg.covers(at)
		narrower = narrower || seg.kind == wild && at.kind == literal
	}

	same := len(p.segments) == len(route.segments) && !route.rest
	switch {
	case covered && p.rest && len(p.segments) <= len(route.segments):
		return Always
	case covered && narrower && !p.rest && (same || route.rest):
		return Apart
	case covered && same:
		return Always
	case route.fixed:
		return Never
	}
	return ByPath
}

// covers reports whether the segment matches all that a route's segment matches.
func (s segment) covers(route segment) bool {
	switch {
	case s.kind == wild:
		return true
	case s.kind == prefix:
		return route.kind != wild && hasPrefix(route.text, s.text)
	}
	return route.kind < prefix && strings.EqualFold(s.text, route.text)
}

// hasPrefix is [strings.HasPrefix] in upper or lower case.
func hasPrefix(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// MatchURL reports whether the pattern matches the URL's path in any way that a router may read
// it: decoded before or after splitting, with or without path cleaning ("//", "/../"), also by a
// router that is mounted and cleans what is left of the path, in upper or lower case, with or without
// a trailing slash, with or without parameters (";x") after a segment.
//
// With greedy a wildcard at the end matches several segments, as in echo, where "/search/:q" serves
// /search/a/b.
func (p *Pattern) MatchURL(u *url.URL, greedy bool) bool {
	if p.match(u.Path, false, greedy) {
		return true
	}

	// A slash that a router adds behind an escaped one makes an empty parameter at the end.
	return u.RawPath != "" && (p.match(u.RawPath, true, greedy) || p.match(u.Path+"/", false, greedy))
}

// Serves reports whether a route with this pattern can serve the URL's path as it is: nothing of it was
// removed or cleaned.
func (p *Pattern) Serves(u *url.URL) bool {
	return p.serves(u.Path, false) || u.RawPath != "" && p.serves(u.RawPath, true)
}

func (p *Pattern) serves(path string, escaped bool) bool {
	rest, ok := p.walk(0, path, escaped, true)
	n := len(p.segments)
	open := p.rest || n > 0 && p.segments[n-1].kind != literal // echo's last parameter matches several segments
	return ok && (open || rest == "")
}

// match compares a path as it is, and with all that follows a mount cleaned, wherever that is.
func (p *Pattern) match(s string, escaped, greedy bool) bool {
	if p.matchPath(0, s, escaped, greedy) {
		return true
	}

	for i, want := range p.segments {
		if !clean(s) && p.matchPath(i, path.Clean(s), escaped, greedy) {
			return true
		}

		rest := strings.TrimPrefix(s, "/")
		seg, below, more := strings.Cut(rest, "/")
		text := want.kind == literal && i+1 < len(p.segments) && p.segments[i+1].kind == literal
		if text && len(seg) > len(want.text) && hasPrefix(seg, want.text) {
			// A prefix that is stripped may end inside a segment: of /apilogin it leaves "login", which gin may take for /login.
			if p.matchPath(i+1, path.Clean("/"+rest[len(want.text):]), escaped, greedy) {
				return true
			}
		}

		if !more || !want.matches(decoded(seg, escaped), more) {
			return false
		}
		s = s[len(s)-len(below)-1:]
	}
	return !clean(s) && p.matchPath(len(p.segments), path.Clean(s), escaped, greedy)
}

// clean reports whether the path is as [path.Clean] leaves it, but for a slash at its end.
func clean(s string) bool {
	cleaned := path.Clean(s)
	return cleaned == s || cleaned == strings.TrimSuffix(s, "/")
}

// matchPath compares a path with the pattern from a segment on.
func (p *Pattern) matchPath(from int, path string, escaped, greedy bool) bool {
	rest, ok := p.walk(from, path, escaped, false)
	// The last parameter of echo takes all that is left, slashes too.
	n := len(p.segments)
	open := p.rest || greedy && n > 0 && p.segments[n-1].kind == wild
	return ok && (open || strings.Trim(rest, "/") == "")
}

// walk compares a path with the pattern's segments from one on, and returns what is left of it. With parts,
// a parameter in a segment matches whatever is there.
func (p *Pattern) walk(from int, path string, escaped, parts bool) (rest string, ok bool) {
	rest, more := strings.TrimPrefix(path, "/"), true
	for _, want := range p.segments[from:] {
		if !more {
			return "", false
		}

		var seg string
		seg, rest, more = strings.Cut(rest, "/")
		if !(parts && want.kind == part) && !want.matches(decoded(seg, escaped), more) {
			return "", false
		}
	}
	return rest, true
}

func decoded(seg string, escaped bool) string {
	if escaped {
		return unescape(seg)
	}
	return seg
}

// matches compares one segment. A wildcard between two slashes may be empty, as in chi and echo; at
// the end of the path it may not.
func (s segment) matches(seg string, more bool) bool {
	switch s.kind {
	case wild:
		return seg != "" || more
	case prefix:
		return hasPrefix(seg, s.text)
	}
	name, _, _ := strings.Cut(seg, ";")
	return strings.EqualFold(seg, s.text) || strings.EqualFold(name, s.text)
}
