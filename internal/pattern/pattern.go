// Package pattern reads route patterns in the syntax of [net/http.ServeMux],
// compares them with each other and with request paths, and turns the route
// templates of gin and echo into that syntax.
//
// It serves a limiter, so every doubt is settled towards a match: a pattern
// matches each request that [net/http.ServeMux] would give to it, and further
// spellings of it (see [Pattern.MatchURL]). A request too many is counted, none
// too few.
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
	rest     bool // anything may follow: "/static/", "/files/{path...}"
	fixed    bool // matches one path only
}

// segment is what stands between two slashes.
type segment struct {
	text string // decoded
	wild bool   // "{id}": any text
}

// Parse reads a pattern as a ServeMux would and returns the ServeMux's error
// where it would panic. Segments in the manner of gin and echo (":id", "*path",
// "*") are read as the wildcards that they are there.
//
// It is stricter with what could never match: a host without a dot or a port, a
// host of other characters than letters, digits and ".-:[]_", a method in lower
// case or with a slip of the pen, a "*" that ends a word, "?" and "#" in a path,
// and white space and what cannot be printed anywhere but between method and path.
// In a path they can all be written percent-encoded. A pattern has at most 1024
// bytes. The error says what would be right.
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
	// With a method a ServeMux refuses "//" and "/../", which can never match.
	// Without, it lets them be and matches odd things.
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

// check asks a ServeMux, which knows its syntax best and panics on mistakes. It
// returns the cause alone, without the pattern and the offset in it, which are not
// those that the user wrote.
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

// Read reads a pattern that a router reports of its own routes, in the syntax
// of ServeMux or chi. It accepts anything; what it does not understand is
// neither fixed nor equal to anything else.
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
			// A parameter inside a segment ("user_:name", "{a}-{b}") stays the
			// text that it is, and what it matches is left to the path.
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

// unescape decodes what can be decoded.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// Open reports whether anything may follow the pattern, as after "/static/". The
// empty pattern, no route, is open too. What serves such a route may be a router
// of its own.
func (p *Pattern) Open() bool { return p.rest }

// Fixed reports whether the pattern matches one path only, so that nothing
// that a request adds can change what the route stands for.
func (p *Pattern) Fixed() bool { return p.fixed }

// HasHost reports whether the pattern is of one host.
func (p *Pattern) HasHost() bool { return p.host != "" }

// MatchMethod reports whether requests of the method are the pattern's. As in
// a ServeMux, GET stands for HEAD too.
func (p *Pattern) MatchMethod(method string) bool {
	return p.method == "" || strings.EqualFold(p.method, method) ||
		strings.EqualFold(p.method, http.MethodGet) && strings.EqualFold(method, http.MethodHead)
}

// MatchHost reports whether a Host field names the pattern's host, whatever
// its case, its port and a dot at its end.
func (p *Pattern) MatchHost(host string) bool {
	return p.host == "" || strings.EqualFold(bareHost(p.host), bareHost(host))
}

// SameHost reports whether a route is of the pattern's host.
func (p *Pattern) SameHost(route *Pattern) bool {
	return p.host == "" || route.host != "" && p.MatchHost(route.host)
}

// bareHost takes port and brackets off as a ServeMux does, "[example.com]:"
// included.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

// Covers reports whether every path of the route is the pattern's as well:
// "/users/{id}" covers "/users/{name}" and "/users/me", "/static/" covers
// "/static/css/{file}". Methods and hosts are not compared.
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

// MatchURL reports whether the URL's path is the pattern's under any reading
// that a router may have of it: decoded before or after it is taken apart,
// with doubled slashes and dot segments resolved or left alone, in upper or
// lower case, with or without a slash at its end, with or without parameters
// (";x") after a segment.
//
// With greedy a parameter at the end may hold several segments, as in echo,
// which serves /search/a/b by "/search/:q".
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

// matches compares one segment. Between two slashes a parameter may be empty,
// as it may in chi and echo; at the end of the path there is then none.
func (s segment) matches(seg string, more bool) bool {
	if s.wild {
		return seg != "" || more
	}
	name, _, _ := strings.Cut(seg, ";")
	return strings.EqualFold(seg, s.text) || strings.EqualFold(name, s.text)
}
