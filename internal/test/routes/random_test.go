package routes

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// shape is a route in no framework's syntax.
type shape struct {
	method   string
	segments []segment
	tail     tail
}

type segment struct {
	kind kind
	text string // before the parameter, if there is one
}

type kind int

const (
	text kind = iota
	param
	inside // text, then a parameter
)

type tail int

const (
	none  tail = iota
	slash      // that path alone, with a slash
	all        // all below
	star       // all that begins so
)

// path returns the shape as a framework writes it.
func (s shape) path(in syntax) string {
	var b strings.Builder
	for i, seg := range s.segments {
		b.WriteString("/" + seg.text)
		if seg.kind != text {
			fmt.Fprintf(&b, in.param, fmt.Sprint("x", i))
		}
	}

	switch s.tail {
	case slash:
		b.WriteString("/")
	case all:
		b.WriteString("/" + in.rest)
	case star:
		b.WriteString("*")
	}

	if in == muxSyntax && s.tail == slash {
		b.WriteString("{$}")
	}
	return b.String()
}

// oracle says what the documentation promises about the shape, as the route of a
// policy, for a request that a route served. concrete is the route's path with the parameters of the
// request. It does not say what happens to requests that are neither must nor never.
func (s shape) oracle(paths *regexp.Regexp, route shape, concrete string) (must, never bool) {
	open := route.tail == all || route.tail == star
	covered, apart := true, false
	for i, seg := range s.segments {
		if i >= len(route.segments) { // a client or a router behind fills in the rest
			covered = covered && open && seg.kind == param && s.tail != all
			continue
		}

		other, last := route.segments[i], i == len(s.segments)-1
		starts := strings.HasPrefix(strings.ToLower(other.text), strings.ToLower(seg.text))
		otherStar := route.tail == star && i == len(route.segments)-1
		switch {
		case seg.kind == param:
			apart = apart || other.kind == text && !otherStar
		case last && s.tail == star:
			covered = covered && other.kind != param && starts
		default:
			covered = covered && seg.kind == other.kind && strings.EqualFold(seg.text, other.text) && !otherStar
		}
	}

	longer, same := len(s.segments) > len(route.segments), len(s.segments) == len(route.segments)
	subtree := s.tail == all || s.tail == star
	switch {
	case covered && subtree && !longer:
		return true, false
	case covered && apart && !subtree && (same || open):
		return false, true
	case covered && !subtree && same && !open:
		return true, false
	}

	for _, p := range []string{concrete, path.Clean(concrete)} { // a router behind may clean it
		must = must || paths.MatchString(p)
	}
	fixed := !open
	for _, seg := range route.segments {
		fixed = fixed && seg.kind == text
	}
	return must && !fixed, fixed
}

// regexp matches the paths of the shape.
func (s shape) regexp() *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?i)^")

	for _, seg := range s.segments {
		b.WriteString("/" + regexp.QuoteMeta(seg.text))
		switch seg.kind {
		case param:
			b.WriteString("[^/]+")
		case inside: // known by the route alone
			b.WriteString("$x")
		}
	}

	switch s.tail {
	case all:
		b.WriteString("(/.*)?$")
	case star:
		b.WriteString(".*$")
	default:
		b.WriteString("/?$")
	}

	return regexp.MustCompile(b.String())
}

type random struct{ *rand.Rand }

func (r random) one(of ...string) string { return of[r.IntN(len(of))] }

func (r random) segment(in syntax) segment {
	switch n := r.IntN(10); {
	case n < 5:
		return segment{text, r.one("users", "me", "search", "v1", "a")}
	case n < 9 || !in.inside:
		return segment{kind: param}
	}
	return segment{inside, r.one("u_", "me")}
}

func (r random) shape(in syntax) shape {
	s := shape{method: r.one("GET", "GET", "POST")}
	for range 1 + r.IntN(3) {
		s.segments = append(s.segments, r.segment(in))
	}
	switch n := r.IntN(10); {
	case n == 0:
		s.tail = slash
	case n <= 2:
		s.tail = all
	case n == 3 && in.star && s.segments[len(s.segments)-1].kind == text:
		s.tail = star
	}
	return s
}

// changed returns the shape, which may be another one in one place.
func (r random) changed(s shape, in syntax) shape {
	s.segments = append([]segment{}, s.segments...)
	switch r.IntN(6) {
	case 0, 1:
		s.segments[r.IntN(len(s.segments))] = r.segment(in)
	case 2:
		s.segments, s.tail = append(s.segments, r.segment(in)), none
	case 3:
		s.tail = []tail{none, slash, all}[r.IntN(3)]
	}
	if last := s.segments[len(s.segments)-1]; s.tail == star && last.kind != text {
		s.tail = none
	}
	return s
}

// policy returns the shape as the route of a policy.
func (r random) policy(s shape) string {
	in := muxSyntax
	if r.IntN(2) == 0 {
		in = syntax{param: ":other_%s", rest: r.one("*", "*rest", "")}
	}
	for _, seg := range s.segments {
		if seg.kind == inside {
			in = echoSyntax // its name is compared
		}
	}
	if s.tail == slash {
		s.tail = none
	}
	return r.one(s.method+" ", "") + s.path(in)
}

// target returns a request for the shape in some spelling.
func (r random) target(s shape) string {
	var b strings.Builder
	for _, seg := range s.segments {
		b.WriteString(r.one("/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "/", "//", "/./", "/a/../", "/%2e/", "/a/%2E%2e/", "%2F", "/../", "/%2e%2e%2f"))
		word := seg.text
		if seg.kind != text {
			word += r.one("users", "me", "search", "v1", "a", "7", "users", "me", "search", "v1", "a", "7", "u_bob", "a%2Fb", "a%252Fb", "..", "%2e%2e", "", ";x", "me;x=1", "%3A", "%C3%A9")
		}

		switch n := r.IntN(20); {
		case n == 0 && word != "" && word[0] != '%':
			word = fmt.Sprintf("%%%02x%s", word[0], word[1:])
		case n == 1:
			word = strings.ToUpper(word)
		case n == 2:
			word += r.one(";x", "%00", "%20", ".", "x")
		}

		b.WriteString(word)
	}

	switch {
	case s.tail == star:
		b.WriteString(r.one("", ".User", ".User/Get", "/"))
	case s.tail == all:
		b.WriteString(r.one("", "/", "/me", "/a/b", "//me", "/..", "/%2e%2e/me", "/me/"))
	default:
		b.WriteString(r.one("", "", "", "", "/", "//", "/me", "/.", "%2f", "?x=/me"))
	}

	if target := b.String(); strings.HasPrefix(target, "/") {
		return target
	}
	return "/" + b.String()
}

// No request is served without the policies of its route, and none is charged to a policy that is
// for other routes, in any framework and in any spelling.
func TestRandomRouters(t *testing.T) {
	race.Skip(t)

	routers := 500
	if os.Getenv("RATELIMIT_LONG") != "" {
		routers = 10_000
	}

	for number, k := range kits {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			charged := map[string]bool{}
			limiter := middleware.Must(middleware.New(middleware.Config{
				Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler), Headers: middleware.HeadersNone,
				Observe: func(_ *http.Request, d *middleware.Decision) {
					for _, result := range d.Results {
						charged[result.Policy] = true
					}
				},
			}, middleware.Policy{Name: "first", Key: sitetest.Everybody, Limit: gcra.PerSecond(1)}))

			requests, expected, excluded := 0, 0, 0
			for seed := range routers {
				r := random{rand.New(rand.NewPCG(uint64(seed), uint64(number)))} // a failure is repeated by its seed
				var shapes []shape
				var routes []route

				by, concrete := -1, ""
				var target *http.Request
				serve := func(i int, value func(string) string) {
					by, concrete = i, ""
					for n, seg := range shapes[i].segments {
						concrete += "/" + seg.text
						if seg.kind != text {
							concrete += k.value(target.URL, value(fmt.Sprint("x", n)))
						}
					}

					rest := k.value(target.URL, value("rest"))
					if shapes[i].tail == all && k.syntax != ginSyntax { // whose rest has the slash
						concrete += "/"
					}
					if shapes[i].tail >= all {
						concrete += rest
					}
				}

				for range 1 + r.IntN(6) {
					s := r.shape(k.syntax)
					if len(shapes) > 0 && r.IntN(2) == 0 {
						s = r.changed(shapes[r.IntN(len(shapes))], k.syntax)
					}
					more := append(append([]route{}, routes...), route{s.method, s.path(k.syntax)})
					if k.tryBuild(limiter, more, serve) != nil {
						shapes, routes = append(shapes, s), more
					}
				}

				var own []shape // of the policies
				var paths []*regexp.Regexp
				var policies []middleware.Policy
				for i := range 2 * len(shapes) {
					s := shapes[i/2]
					if i%2 == 1 {
						s = r.changed(s, k.syntax)
					}
					written := r.policy(s)
					if !strings.Contains(written, " ") {
						s.method = ""
					}

					own, paths = append(own, s), append(paths, s.regexp())
					policies = append(policies, middleware.Policy{Name: fmt.Sprint(i), Key: sitetest.Everybody, Limit: gcra.PerSecond(1), Routes: []string{written}, Shadow: true})
				}

				if err := limiter.Reload(policies...); err != nil {
					t.Fatalf("seed %d, %s: %v", seed, show(k, routes, policies), err)
				}

				h := k.tryBuild(limiter, routes, serve)
				for range 16 {
					target = httptest.NewRequest(r.one("GET", "GET", "HEAD", "POST"), r.target(shapes[r.IntN(len(shapes))]), nil)
					by = -1
					clear(charged)
					h.ServeHTTP(httptest.NewRecorder(), target)
					if by < 0 {
						continue
					}
					requests++
					// net/http serves /a/%2f by /a/{$}, and so more policies than that route's may apply.
					other := k.syntax == muxSyntax && shapes[by].tail == slash && strings.HasSuffix(target.URL.Path, "//")

					for i, s := range own {
						method := s.method == "" || s.method == target.Method || s.method == "GET" && target.Method == "HEAD"
						must, never := s.oracle(paths[i], shapes[by], concrete)
						if s.inside() && (k.unknown || k.syntax.param != ":%s") { // by path it is text
							continue
						}
						must, never = must && method, never && !k.unknown && !other || !method
						if must {
							expected++
						} else if never {
							excluded++
						}

						if got := charged[policies[i].Name]; got != must && (must || never) {
							t.Fatalf("seed %d, %s: %s %s was served by %q as %q: policy %q was charged: %t; want %t",
								seed, show(k, routes, policies), target.Method, target.RequestURI, routes[by], concrete, policies[i].Routes[0], got, must)
						}
					}
				}
			}

			t.Logf("%d requests served, %d policies expected, %d excluded", requests, expected, excluded)
			if requests < routers || expected < requests || excluded < requests/2 {
				t.Error("want more of them")
			}
		})
	}
}

// inside reports whether a parameter is a part of a segment.
func (s shape) inside() bool {
	for _, seg := range s.segments {
		if seg.kind == inside {
			return true
		}
	}
	return false
}
