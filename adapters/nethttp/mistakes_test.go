package ratelimit_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A configuration that can never work is an error of middleware.New and a panic of
// an adapter's New. The text has what the user wrote and what would be right.
func TestMistakesOfNewcomers(t *testing.T) {
	store := middleware.Config{Store: gcra.NewMemory()}
	good := middleware.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5)}
	with := func(change func(*middleware.Policy)) []middleware.Policy {
		p := good
		change(&p)
		return []middleware.Policy{p}
	}

	type mistake struct {
		cfg      middleware.Config
		policies []middleware.Policy
		want     string
	}

	var noRedis *redisstore.Store // what an ignored error of redisstore.Open leaves
	mistakes := []mistake{
		{middleware.Config{}, []middleware.Policy{good}, "ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own"},
		{middleware.Config{Store: noRedis}, []middleware.Policy{good}, "ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own"},
		{store, nil, "ratelimit: no policies; want at least one"},
		{store, with(func(p *middleware.Policy) { p.Key = nil }), `ratelimit: policy "login": Key is nil; want one of package keyfunc or your own`},
		{store, with(func(p *middleware.Policy) { p.Limit = gcra.Limit{} }),
			`ratelimit: policy "login": Limit is missing; want one such as gcra.PerMinute(100), or LimitFor`},
		{store, with(func(p *middleware.Policy) { p.Limit = gcra.PerMinute(0) }), `ratelimit: policy "login": Limit is 0/minute: count is 0; want at least 1`},
		{store, with(func(p *middleware.Policy) { p.Name = "" }),
			`ratelimit: policy number 1: Name is missing; want one such as "client", as the store keeps the policy's state under it`},
		{store, []middleware.Policy{good, good}, `ratelimit: policy "login": Name is taken by an earlier policy; want unique names`},
		{middleware.Config{}, []middleware.Policy{{Routes: []string{"login"}}}, "ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own\n" +
			"ratelimit: policy number 1: Name is missing; want one such as \"client\", as the store keeps the policy's state under it\n" +
			"ratelimit: policy number 1: Key is nil; want one of package keyfunc or your own\n" +
			"ratelimit: policy number 1: Limit is missing; want one such as gcra.PerMinute(100), or LimitFor\n" +
			`ratelimit: policy number 1: Routes[0] is "login": it has no "/"; want a pattern such as "POST /login"`},
	}

	for _, route := range [][2]string{
		{"", `it has no "/"; want a pattern such as "POST /login"`},
		{"POST login", `it has no "/"; want a pattern such as "POST /login"`},
		{"login/", `"login" would be a host, which has a dot or a port; want a pattern such as "POST /login"`},
		{"POST/login", `"POST" would be a host, which has a dot or a port; want a pattern such as "POST /login"`},
		{"post /login", `"post" is not a method in upper case; want a pattern such as "POST /login"`},
		{"PSOT /login", `"PSOT" is not a method in upper case; want a pattern such as "POST /login"`},
		{"GET,POST /login", `"GET,POST" is not a method in upper case; want a pattern such as "POST /login"`},
		{"/users/<id>", `"*" stands only at the end, and {name} for a segment; want a pattern such as "POST /login"`},
		{"^/login$", `the text before the first slash is a host, which cannot contain "^"; want a pattern such as "POST /login"`},
		{"/users/{id", `bad wildcard segment (must end with '}'); want a pattern such as "POST /login"`},
		{"/users/{}", `empty wildcard; want a pattern such as "POST /login"`},
		{"/users/{id:[0-9]+}", `bad wildcard name "id:[0-9]+"; want a pattern such as "POST /login"`},
		{"GET /{x}/{x}", `duplicate wildcard name "x"; want a pattern such as "POST /login"`},
	} {
		mistakes = append(mistakes, mistake{store, with(func(p *middleware.Policy) { p.Routes = []string{"/ok", route[0]} }),
			`ratelimit: policy "login": Routes[1] is "` + route[0] + `": ` + route[1]})
	}

	for _, m := range mistakes {
		l, err := middleware.New(m.cfg, m.policies...)
		if l != nil || err == nil || err.Error() != m.want {
			t.Errorf("middleware.New: got %v\nwant %s", err, m.want)
		}
		if got := panicOf(func() { ratelimit.New(m.cfg, m.policies...) }); got != m.want {
			t.Errorf("ratelimit.New: got panic %s\nwant %s", got, m.want)
		}
	}
}

func panicOf(f func()) (text string) {
	defer func() {
		if err, ok := recover().(error); ok {
			text = err.Error()
		}
	}()
	f()
	return ""
}

// Patterns that look odd but can match are accepted.
func TestNewAcceptsWhatCanMatch(t *testing.T) {
	for route, request := range map[string]string{
		"/api": "GET /api", "/login/*": "GET /login/x", "QUERY /a": "QUERY /a", "PURGE /a": "PURGE /a", "LINK /a": "LINK /a",
		"PROPFIND /a": "PROPFIND /a", "localhost/a": "GET http://localhost/a", "orders:80/a": "GET http://orders/a", "/a%2A": "GET /a*",
	} {
		l, err := middleware.New(middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{route}})
		if err != nil {
			t.Errorf("%q: %v", route, err)
			continue
		}

		method, target, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, target, nil)
		if d := l.Decide(r); len(d.Results) != 1 {
			t.Errorf("%q: %s is not counted", route, request)
		}
	}
}
