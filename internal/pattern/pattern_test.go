package pattern

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ pattern, want string }{
		{"GET /a//b", "unclean path"},
		{"/{x}/{x}", "duplicate wildcard name"},
		{"/a{x}", "bad wildcard segment"},
		{"/{x...}/b", "not at end"},
		{"//", "unclean path"},
		{"/a/../b", "unclean path"},
		{"", `it has no "/"`},
		{"login", `it has no "/"; want a pattern such as "POST /login"`},
		{"/a b", `"/a" is not a method`},
		{"post /login", `"post" is not a method in upper case`},
		{"PSOT /login", `"PSOT" is not a method`},
		{"PIST /login", `"PIST" is not a method`},
		{"POSTT /login", `"POSTT" is not a method`},
		{"POT /login", `"POT" is not a method`},
		{"GET,POST /a", `"GET,POST" is not a method`},
		{"* /login", `"*" is not a method`},
		{"ANY /login", `"ANY" is not a method`},
		{"login/", `"login" would be a host, which has a dot or a port`},
		{"POST/login", `"POST" would be a host`},
		{"POST:/login", `"POST:" would be a host`},
		{"http://example.com/x", `"http:" would be a host`},
		{"/api/v*/users", `"*" stands only at the end`},
		{"/a*b", `"*" stands only at the end`},
		{"/*path/b", "not at end"},
		{"/users/<id>", "{name} for a segment"},
		{"/users/[id]/posts", "{name} for a segment"},
		{"/users/(.*)", "{name} for a segment"},
		{"/a/{id:[0-9]+}", "bad wildcard name"},
	} {
		if _, err := Parse(test.pattern); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v; want %q", test.pattern, err, test.want)
		}
	}
}

// A pattern that matches no request is an error; a pattern that matches one is not.
func TestParseNeverMatches(t *testing.T) {
	for pattern, want := range map[string]string{
		"POST\u00a0/login":       `"\u00a0" at offset 4 is white space`,
		"POST\u3000/login":       `"\u3000" at offset 4 is white space`,
		"POST /login ":           `" " at offset 11 is white space`,
		"POST /log in":           "in a path write %20",
		" /login":                `" " at offset 0 is white space`,
		"POST  a /login":         `" " at offset 7 is white space`,
		"POST /login\t":          `"\t" at offset 11 is white space`,
		"POST /login\n":          "in a path write %0A",
		"POST /login\u200b":      "in a path write %E2%80%8B",
		"POST /\ufefflogin":      "cannot be printed",
		"POST /login\x00":        "cannot be printed",
		"POST /login\xff":        `"\xff" at offset 11`,
		"POST /login?next=x":     `ends before "?"; in a path write %3F`,
		"POST /login#x":          `ends before "#"; in a path write %23`,
		"/{id}?x":                `ends before "?"`,
		"*/login":                `a host, which cannot contain "*"`,
		":8080/login":            `a host, which ":8080" is not`,
		"[]/login":               `a host, which "[]" is not`,
		"POST https:%2F/x":       `a host, which cannot contain "%"`,
		"bücher.example/x":       `a host, which cannot contain "\xc3"`,
		"/" + long(maxLength):    "it has 1025 bytes; want at most 1024",
		"/" + long(maxLength-1):  "",
		"POST  \t /login":        "",
		"/Straße/日本/e\u0301":     "",
		"/a%20b/%3F%23/100%/%E2": "",
		"/a/:id/*path":           "",
		"/a/{id}/{$}":            "",
		"/a/{rest...}":           "",
		"/user_:name/a,b;c=d@e!": "",
		"localhost/":             "",
		"GET my-host_1.io:80/":   "",
		"[::1]:8080/x":           "",
		"LocalHost/":             "",
		"/login/*":               "",
		"/login/**":              "",
		"/login*":                "",
		"/a%2Ab":                 "",
	} {
		_, err := Parse(pattern)
		if want == "" && err != nil {
			t.Errorf("%.60q: got %v; want no error", pattern, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: got %v; want %s", pattern, err, want)
		}
	}
}

// No method in use counts as a typo: the IANA registry's, with QUERY of RFC 10008, and others
// of caches and devices.
func TestParseMethods(t *testing.T) {
	for method := range strings.FieldsSeq(`
		ACL BASELINE-CONTROL BIND CHECKIN CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK MERGE MKACTIVITY MKCALENDAR
		MKCOL MKREDIRECTREF MKWORKSPACE MOVE OPTIONS ORDERPATCH PATCH POST PRI PROPFIND PROPPATCH PUT QUERY REBIND REPORT
		SEARCH TRACE UNBIND UNCHECKOUT UNLINK UNLOCK UPDATE UPDATEREDIRECTREF VERSION-CONTROL
		BAN LIST M-SEARCH NOTIFY POLL PURGE PUSH REFRESH SUBSCRIBE UNSUBSCRIBE VIEW`) {
		if _, err := Parse(method + " /a"); err != nil {
			t.Errorf("%s: got %v; want no error", method, err)
		}
	}
}

func long(n int) string { return strings.Repeat("a", n) }

func TestOn(t *testing.T) {
	for _, test := range []struct {
		pattern, route string
		want           Relation
	}{
		// A subtree.
		{"/", "", Always},
		{"/users/", "/users/{id}/posts/{n}", Always},
		{"/users/", "/users/search", Always},
		{"/users/{path...}", "/users/{id}/posts", Always},
		{"/users/*", "/users/{path...}", Always},
		{"/{tenant}/", "/acme/login", Always},
		{"/login/", "/login", Always},
		{"/api/", "/api/*", Always},
		{"/api/", "/api*", ByPath}, // as it holds /apis, too
		{"/notes.api.v1.*", "/notes.api.v1.*", Always},
		{"/notes.api.*", "/notes.api.v1.*", Always},
		{"/notes.api.*", "/notes.api.v1.User/Get", Always},
		{"/notes.api.v1.*", "/notes.api.*", ByPath},
		{"/notes.api.v1.*", "/metrics", Never},
		// A route of its own.
		{"/users/{id}", "/users/search", Apart},
		{"/auth/{action}", "POST /auth/login", Apart},
		{"/{table}/{id}", "/users/{id}", Apart},
		{"/{page}", "/static/", Apart},
		{"/{page}", "/static/css/*", Apart},
		{"/{a}/{b}", "/static/", Apart},
		// The same shape.
		{"/login", "POST /login", Always},
		{"POST /login", "/login", Always}, // On does not compare methods
		{"/login", "/Login", Always},
		{"/login", "/login/{$}", Always},
		{"/users/:id", "/users/{name}", Always},
		{"/users/{id}", "/users/{id:[0-9]+}", Always},
		{"/users/{id}", "/users/{id:[0-9]{2}}", Always},
		{"/users/{id}/posts", "/users/{id:[^/]{2,9}}/posts", Always},
		{"/users/{id}", "/users/{id}.json", Always},
		{"/a%20b", "/a%20b", Always},
		{"/user_:name", "/user_:name", Always},
		// A client fills in what the pattern has as text, or the router behind does.
		{"/users/me", "/users/{id}", ByPath},
		{"/user_bob", "/user_:name", ByPath},
		{"/{version}/login", "/v1/{action}", ByPath},
		{"/{version}/login", "/v1/", ByPath},
		{"/{version}/login/{x}", "/v1/*", ByPath},
		{"/api/v1", "/api/*", ByPath},
		{"/login", "/login/", ByPath},
		{"/login", "", ByPath},
		{"/users/{id}", "/users/{path...}", ByPath},
		{"/{a}/{b}/", "/acme/*", ByPath},
		// Another route.
		{"/login", "/logins", Never},
		{"/login", "/login/x", Never},
		{"/users/{id}", "/users/search/all", Never},
		{"/users/{id}/posts", "/users/search", Never},
		{"/{a}/{b}", "/a", Never},
	} {
		p, err := Parse(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.On(FromRouter(test.route)); got != test.want {
			t.Errorf("%q on %q: got %d; want %d", test.pattern, test.route, got, test.want)
		}
	}
}

func TestMatchURL(t *testing.T) {
	for _, test := range []struct {
		pattern string
		targets string
		want    bool
	}{
		{"/login", "/login /login/ //login /./login /x/../login /%2e/login /LOGIN /lo%67in /login;x /login;x=1/ /login// http://h/login /%2Flogin", true},
		{"/login", "/logi /logins / /login/x /x/login", false},
		{"/api/login", "/api/../login /api/%2e%2e/login /api/%2e%2e%2flogin /api/x/../../login /x/../api/login /apilogin /apix/../login /api/./login /api/login/x/..", true}, // mounted, and cleaned there
		{"/api/login", "/api/x/../logins /apilogins /x/../login", false},
		{"/users/{id}", "/users/1 /users/1/ /users/a%2Fb /users//1 /USERS/1 /users/%20", true},
		{"/users/{id}", "/users /users/ /users/1/2", false},
		{"/users/{id}/posts", "/users/1/posts /users//posts /users/../posts /users/a%2Fb/posts", true},
		{"/users/{id}", "//users/a%2Fb /x/../users/a%2Fb", true},
		{"/a/{x}/{y}", "/a/../b%2Fc", true}, // chi and echo leave dots alone
		{"/a/{x}/{y}", "/a/b%2F", true},     // behind echo's AddTrailingSlash
		{"/static/", "/static /static/ /static/a/b /static/../static/x /x/../static/", true},
		{"/static/", "/statics /", false},
		{"/a/{$}", "/a /a/", true},
		{"/", "/ /a //", true},
		{"/{$}", "/a", false},
		{"/notes.api.v1.*", "/notes.api.v1.User/Get /notes.api.v1. //notes.api.v1.X /NOTES.api.v1.x/y/z /notes%2Eapi.v1.X", true},
		{"/notes.api.v1.*", "/notes.api /notes.api.v2.X /x/notes.api.v1.X", false},
	} {
		p, err := Parse(test.pattern)
		if err != nil {
			t.Fatal(err)
		}

		for _, target := range strings.Fields(test.targets) {
			u, err := url.ParseRequestURI(target) // as the server does
			if err != nil {
				t.Fatal(err)
			}

			if got := p.MatchURL(u, false); got != test.want {
				t.Errorf("%q, %q: got %t; want %t", test.pattern, target, got, test.want)
			}
			if test.want && !p.MatchURL(u, true) {
				t.Errorf("%q, %q: greedy does not match what matches otherwise", test.pattern, target)
			}
		}
	}
}

func TestServes(t *testing.T) {
	for _, test := range []struct {
		route, targets string
		want           bool
	}{
		{"/login", "/login /LOGIN /login/ /lo%67in", true},
		{"/login", "/ /logins //login /login// /x/../login /login/x", false},
		{"/api/", "/api /api/ /api/x /api/x/../..", true},
		{"/api/", "/ //api /x/api", false},
		{"/users/{id}", "/users/1 /users/a/b /users/a%2Fb", true},
		{"/users/u_:x/{id}", "/users/u_7/1 /users/x/1", true},
		{"", "/ /a //a", true},
	} {
		for target := range strings.FieldsSeq(test.targets) {
			u, err := url.ParseRequestURI(target)
			if err != nil {
				t.Fatal(err)
			}
			if got := FromRouter(test.route).Serves(u); got != test.want {
				t.Errorf("%q, %q: got %t; want %t", test.route, target, got, test.want)
			}
		}
	}
}

func TestMatchURLGreedy(t *testing.T) {
	for _, test := range []struct {
		pattern string
		targets string
		want    bool
	}{
		{"/search/:q", "/search/a/b /search/a/b/ /search/a%2Fb/c //search/a/b /x/../search/a/b /SEARCH/a//b", true},
		{"/search/:q", "/search /search/ /other/a/b", false},
		{"/:tenant/:id", "/acme/a/b/c", true},
		{"/{tenant}/search/{q}", "/acme/search/a/b", true},
		{"/{tenant}/search/{q}", "/acme/x/search/a", false}, // only the last holds several
		{"/users/{id}/posts", "/users/1/posts/2 /users/1/2/posts", false},
		{"/login", "/login/x", false},
		{"/search/{q}/{$}", "/search/a/b/", true},
		{"/{$}", "/a", false},
	} {
		p, err := Parse(test.pattern)
		if err != nil {
			t.Fatal(err)
		}

		for _, target := range strings.Fields(test.targets) {
			u, err := url.ParseRequestURI(target)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.MatchURL(u, true); got != test.want {
				t.Errorf("%q, %q: got %t; want %t", test.pattern, target, got, test.want)
			}
		}
	}
}

func TestOpen(t *testing.T) {
	for route, want := range map[string]bool{
		"": true, "/": true, "/api/": true, "/api/*": true, "/{path...}": true, "GET h.com/api/": true, "/static*": true,
		"/login": false, "/users/{id}": false, "/{$}": false, "/users/{id:[0-9]+}": false,
	} {
		if got := FromRouter(route).Open(); got != want {
			t.Errorf("%q: got %t; want %t", route, got, want)
		}
	}
}

func TestMount(t *testing.T) {
	for route, want := range map[string]bool{
		"/": true, "/api/": true, "GET /api/{path...}": true, "/api/*": true,
		"/api": false, "/{$}": false, "/{tenant}/": false, "/user_:name/*": false, "/static*": false,
	} {
		if got := FromRouter(route).Mount(); got != want {
			t.Errorf("%q: got %t; want %t", route, got, want)
		}
	}
}

func TestMatchHostAndMethod(t *testing.T) {
	p := FromRouter("GET example.com/x")
	for host, want := range map[string]bool{
		"example.com": true, "EXAMPLE.com:8080": true, "example.com.": true, "example.com.:80": true,
		"[example.com]:80": true, "[example.com]:": true, "example.com:": true, // a ServeMux accepts these
		"example.org": false, "": false, "[::1]:80": false, "aexample.com": false,
	} {
		if got := p.MatchHost(host); got != want {
			t.Errorf("host %q: got %t; want %t", host, got, want)
		}
	}

	if v6 := FromRouter("[::1]/x"); !v6.MatchHost("[::1]:80") || !v6.MatchHost("[::1]") || v6.MatchHost("[::2]") {
		t.Error("IPv6 hosts: got a wrong match")
	}
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "get": true, "POST": false, "": false} {
		if got := p.MatchMethod(method); got != want {
			t.Errorf("method %q: got %t; want %t", method, got, want)
		}
	}
}

func TestFromTemplate(t *testing.T) {
	known := Templates{Convert: FromTemplate} // of all, so that one template has several methods
	for _, test := range []struct{ method, template, want string }{
		{"POST", "/users/:id", "POST /users/{id}"},
		{"GET", "/users/:id", "GET /users/{id}"},
		{"HEAD", "/users/:id/posts/:n", "GET /users/{id}/posts/{n}"},
		{"BREW", "/pot", "/pot"},
		{"GET", "", ""},
		{"GET", "/", "GET /{$}"},
		{"GET", "/static/", "GET /static/{$}"},
		{"GET", "/files/*path", "GET /files/{path...}"},
		{"GET", "/files/*", "GET /files/{path...}"},
		{"GET", "/files/*/rest", "GET /files/{path...}"},
		{"GET", "/user_:name", "GET /user_:name"},
		{"GET", "/a/:user-id/:", "GET /a/{user_id}/{path}"},
		{"GET", "/what?/#/a\u00a0b/\u200b/\xff/é", "GET /what%3F/%23/a%C2%A0b/%E2%80%8B/%FF/é"},
		{"GET", "/{x}/100%/a b", "GET /%7Bx%7D/100%25/a%20b"},
		{"GET", `/v1/things\:batch`, "GET /v1/things:batch"},
		{"GET", "login", "GET /login"},
	} {
		for range 2 { // computed, and cached
			if got := known.Pattern(test.method, test.template); got != test.want {
				t.Errorf("%s %q: got %q; want %q", test.method, test.template, got, test.want)
			}
		}

		if test.want != "" {
			if _, err := Parse(test.want); err != nil {
				t.Errorf("%q: Parse rejects it: %v", test.want, err)
			}
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	var m Cache[int, int]
	for i := range 2 * maxCache {
		m.Put(i, i)
	}
	if _, ok := m.Get(maxCache - 1); !ok {
		t.Error("the last entry that fits is missing")
	}
	if _, ok := m.Get(maxCache); ok {
		t.Error("one entry too many is there")
	}
}

// FuzzMatch compares with a ServeMux: a pattern matches, by path and by route, every request that
// the ServeMux serves by it.
func FuzzMatch(f *testing.F) {
	for _, pattern := range []string{"/login", "POST /login", "/users/{id}", "/users/{id}/posts", "/static/", "/a/{$}", "/", "/{x...}", "h.com/x", "/lo%67in", "/:id"} {
		for _, target := range []string{"/login", "//login", "/./login", "/%2e/login", "/LOGIN", "/login/", "/login;x", "/users/a%2Fb", "/users//posts", "/static/../x", "*"} {
			f.Add(pattern, "GET", "h.com:80", target)
		}
	}

	f.Fuzz(func(t *testing.T, pattern, method, host, target string) {
		p, err := Parse(pattern)
		if err != nil || check(pattern) != nil {
			t.Skip()
		}
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Skip()
		}

		r := &http.Request{Method: method, Host: host, URL: u, Proto: "HTTP/1.1"}
		var route string
		mux := http.NewServeMux()
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) { route = r.Pattern })
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if route == "" {
			return
		}

		if !p.MatchMethod(method) || !p.MatchHost(host) || !p.MatchURL(u, false) {
			t.Errorf("%q serves %s %s%s, but method %t, host %t, path %t", pattern, method, host, target, p.MatchMethod(method), p.MatchHost(host), p.MatchURL(u, false))
		}
		if p.On(FromRouter(route)) != Always {
			t.Errorf("%q does not apply to its own route", pattern)
		}
	})
}
