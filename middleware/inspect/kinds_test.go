package inspect_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// The page says what each policy counts by: the kinds of the keys of its first requests.
func TestCountsBy(t *testing.T) {
	user := func(r *http.Request) (string, error) {
		if name := r.Header.Get("Who"); name != "" {
			return "sub:" + name, nil
		}
		return "", nil
	}

	s := newScene(t,
		middleware.Policy{Name: "users", Key: user, Limit: five},
		middleware.Policy{Name: "either", Key: keyfunc.First(user, keyfunc.RemoteAddr), Limit: five},
		middleware.Policy{Name: "both", Key: keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route), Limit: five},
		middleware.Policy{Name: "account", Key: keyfunc.As("account", user, func(key string) string { return key }), SkipAnonymous: true, Limit: five},
		middleware.Policy{Name: "server", Key: keyfunc.Const("x"), Limit: five},
		middleware.Policy{Name: "idle", Key: user, Limit: five, Routes: []string{"/idle"}},
	)

	for _, name := range []string{"alice|x", ""} {
		r := httptest.NewRequest("GET", "/hello", nil)
		r.Pattern = "GET /hello"
		r.Header.Set("Who", name)
		s.limiter.Decide(r)
	}

	page := strings.Join(strings.Fields(s.html("")), " ")
	for _, p := range s.json("").Policies {
		want := map[string]struct {
			kinds []string
			text  string
		}{
			"users":   {[]string{"anonymous", "sub"}, "by nothing (anonymous) or user<"},
			"either":  {[]string{"ip", "sub"}, "by address or user<"},
			"both":    {[]string{"ip and route"}, "by address and route<"},
			"account": {[]string{"account"}, "by account<"},
			"server":  {[]string{"const"}, "by a constant<"},
			"idle":    {[]string{}, "no request since it was loaded, so it is not known what it counts by<"},
		}[p.Name]

		if !slices.Equal(p.Kinds, want.kinds) {
			t.Errorf("%s: got kinds %q; want %q", p.Name, p.Kinds, want.kinds)
		}
		if !strings.Contains(page, want.text) {
			t.Errorf("%s: the page does not say %q", p.Name, want.text)
		}
	}
}

// Only the kind of a key is kept, never a name or an address, and not many of them.
func TestKindsKeepNoSubject(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "only", Key: who, Limit: five})
	for _, subject := range []string{"192.0.2.7", "2001:db8::1", "Alice Smith: admin", "alice", "a-very-long-name-of-somebody:7", ":", hostile} {
		s.ask(1, subject, "/")
	}
	if got := s.json("").Policies[0].Kinds; !slices.Equal(got, []string{"other"}) {
		t.Errorf("got %q; want other", got)
	}

	for i := range 1000 {
		s.ask(1, fmt.Sprintf("k%d:x", i), "/")
	}
	if got := s.json("").Policies[0].Kinds; len(got) != 4 {
		t.Errorf("got %d kinds; want 4", len(got))
	}
}

// Policies that deny are first, and the rest keep their order. Of fifty, five are open.
func TestFiftyPolicies(t *testing.T) {
	policies := make([]middleware.Policy, 50)
	for i := range policies {
		policies[i] = middleware.Policy{Name: fmt.Sprint("p", i), Key: who, Limit: five, Routes: []string{fmt.Sprint("/", i)}}
	}
	policies[49].Shadow = true
	s := newScene(t, policies...)
	s.ask(9, "x", "/30")
	s.ask(12, "x", "/40")
	s.ask(99, "x", "/49")

	var order []string
	for _, p := range s.json("").Policies {
		order = append(order, p.Name)
	}
	if got, want := strings.Join(order[:5], " "), "p40 p30 p49 p0 p1"; got != want || len(order) != 50 {
		t.Errorf("got %s ... of %d; want %s ... of 50", got, len(order), want)
	}

	page := s.html("")
	if got := strings.Count(page, "<details"); got != 50 {
		t.Errorf("got %d policies on the page; want 50", got)
	}
	if got := strings.Count(page, "<details class=\"card policy\" open>"); got != 5 {
		t.Errorf("got %d open; want 5", got)
	}
	if len(page) > 200_000 {
		t.Errorf("the page has %d bytes; want at most 200,000", len(page))
	}
}
