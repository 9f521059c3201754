package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

const allKinds = `
policies:
  - {name: client, key: client, limit: 30/minute burst 10}
  - {name: login, key: client, limit: 5/minute, routes: ["POST /login"], on_failure: closed}
  - {name: costly, key: [user, client], limit: 30/minute burst 9, routes: ["GET /users/{id}"], cost: 3}
  - {name: plan, key: [user, client], plans: {free: 20/minute burst 5, pro: 40/minute}}
  - {name: smooth, key: user, limit: 6/minute burst 1, max_delay: 3s, routes: [/static/]}
  - {name: route, key: route, limit: 250/minute burst 50}
  - name: watched
    key: client
    limit: 10/minute
    shadow: true
    overrides:
      - {limit: 20/minute, subjects: ["ip:2001:db8::/32", "ip:192.0.2.0/28"]}
      - {limit: none, subjects: ["ip:192.0.2.5"]}
`

var allRoutes = []string{"GET /users/{id}", "POST /login", "GET /users/me", "/static/"}

// sent is a request and its line in the log.
type sent struct {
	at                         time.Time
	client, user, plan         string
	method, target             string
	line                       string
	deniedByReplay, deniedLive bool
}

// traffic returns requests of different clients, some far too fast, to routes with and
// without policies.
func traffic(n int) []*sent {
	chance := rand.New(rand.NewPCG(7, 8))
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	var all []*sent

	for range n {
		who := min(chance.IntN(40), chance.IntN(40))
		s := &sent{client: fmt.Sprintf("192.0.2.%d", who), plan: []string{"free", "pro", "", "other"}[who%4]}
		if who%3 == 0 {
			s.client = fmt.Sprintf("2001:db8:%x::%x", who, chance.IntN(1000))
		}
		if who%5 != 0 {
			s.user = fmt.Sprintf("user%d", who)
		}

		request := [][2]string{
			{"GET", "/users/42"}, {"GET", "/users/me"}, {"HEAD", "/users/7?x=%2F"}, {"POST", "/login"}, {"POST", "/LOGIN/"},
			{"GET", "/static/a/b.css"}, {"PUT", "/static"}, {"GET", "/nowhere"}, {"GET", "/"}, {"BREW", "/users/1"},
		}[chance.IntN(10)]
		s.method, s.target = request[0], request[1]

		at = at.Add(time.Duration(chance.IntN(100_000)) * time.Microsecond)
		s.at = at
		if chance.IntN(50) == 0 {
			s.at = at.Add(-time.Duration(chance.IntN(5000)) * time.Millisecond) // logged late
		}

		s.line = fmt.Sprintf(`{"time":%q,"client":%q,"user":%q,"plan":%q,"method":%q,"path":%q}`,
			s.at.Format(time.RFC3339Nano), s.client, s.user, s.plan, s.method, s.target)
		if s.plan == "" && chance.IntN(2) == 0 {
			user := s.user
			if user == "" {
				user = "-"
			}
			s.at = s.at.Truncate(time.Second)
			s.line = fmt.Sprintf(`%s - %s [%s] "%s %s HTTP/1.1" 200 1 "-" "-"`, s.client, user, s.at.Format(commonTime), s.method, s.target)
		}

		all = append(all, s)
	}
	return all
}

type sentKey struct{}

// live sends the requests through the net/http adapter around a mux, with the keys that a
// program would use.
func live(t *testing.T, policies string, all []*sent) {
	t.Helper()
	user := func(ctx context.Context) string { return ctx.Value(sentKey{}).(*sent).user }
	list, err := policyfile.Load(policies, policyfile.Funcs{
		Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr, "user": keyfunc.Subject(user), "route": keyfunc.Route},
		Plan: func(r *http.Request) string { return r.Context().Value(sentKey{}).(*sent).plan },
	})
	if err != nil {
		t.Fatal(err)
	}

	var now time.Time
	mux := http.NewServeMux()
	for _, route := range allRoutes {
		mux.HandleFunc(route, func(http.ResponseWriter, *http.Request) {})
	}
	handler := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})}, list...)(mux)

	for _, s := range all {
		if s.at.After(now) {
			now = s.at
		}

		r := httptest.NewRequest(s.method, s.target, nil)
		r.RemoteAddr = s.client + ":4711"
		if strings.Contains(s.client, ":") {
			r.RemoteAddr = "[" + s.client + "]:4711"
		}

		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sentKey{}, s)))
		s.deniedLive = w.Code == http.StatusTooManyRequests
	}
}

// Replay decides each request as the middleware does.
func TestReplayEqualsMiddleware(t *testing.T) {
	policies := write(t, allKinds)[0]
	all := traffic(6000)
	synctest.Test(t, func(t *testing.T) { live(t, policies, all) }) // as some are held back

	var words funcs
	for _, route := range allRoutes {
		if err := words.routes.add(route); err != nil {
			t.Fatal(err)
		}
	}

	p, err := newPlayer(policies, &words)
	if err != nil {
		t.Fatal(err)
	}

	parser := newParser()
	denied := int64(0)
	for i, s := range all {
		e, err := parser.parse([]byte(s.line))
		if err != nil {
			t.Fatalf("%s: %v", s.line, err)
		}
		s.deniedByReplay = !p.play(&e).Allowed
		if s.deniedByReplay {
			denied++
		}
		if s.deniedByReplay != s.deniedLive {
			t.Fatalf("line %d, %s: got denied %t; want %t", i+1, s.line, s.deniedByReplay, s.deniedLive)
		}
	}

	if share := float64(denied) / float64(len(all)); share < 0.1 || share > 0.9 {
		t.Errorf("%.2f of the requests are denied; want a test of both outcomes", share)
	}
	if p.denied != denied || p.requests != int64(len(all)) || p.late == 0 {
		t.Errorf("counted %d denied of %d, %d late; want %d of %d, and some", p.denied, p.requests, p.late, denied, len(all))
	}

	for _, tally := range p.tallies {
		if tally.requests == 0 || tally.denied == 0 {
			t.Errorf("policy %s: got %d denied of %d; want a test of it", tally.policy.Name, tally.denied, tally.requests)
		}
	}
}

// A shadow policy denies nothing, and its denials are reported.
func TestPlayShadow(t *testing.T) {
	p := played(t, `
policies:
  - {name: enforced, key: client, limit: 3/minute}
  - {name: watched, key: client, limit: 1/minute, shadow: true}
`, strings.Repeat(lineAt(1, "x"), 5))
	for i, want := range []struct{ requests, denied int64 }{{5, 2}, {5, 4}} {
		if got := p.tallies[i]; got.requests != want.requests || got.denied != want.denied {
			t.Errorf("%s: got %d denied of %d; want %d of %d", got.policy.Name, got.denied, got.requests, want.denied, want.requests)
		}
	}
	if p.denied != 2 {
		t.Errorf("got %d denied; want 2", p.denied)
	}
}

// An entry with an earlier time is decided at the time of the one before, and no bucket is
// refilled twice.
func TestPlayClockDoesNotGoBack(t *testing.T) {
	p := played(t, "policies: [{name: a, key: client, limit: 1/minute}]",
		lineAt(0, "x")+lineAt(61, "x")+lineAt(5, "x")+lineAt(62, "x")+lineAt(122, "x"))
	if p.denied != 2 || p.late != 1 || p.latest != 56*time.Second {
		t.Errorf("got %d denied, %d late by up to %v; want 2, 1, 56s", p.denied, p.late, p.latest)
	}
}

func TestPlayPlans(t *testing.T) {
	const policies = "policies: [{name: a, key: client, plans: {free: 1/minute, pro: 3/minute}}]"
	line := func(plan string) string {
		return fmt.Sprintf(`{"time":1795182936,"client":"192.0.2.7","method":"GET","path":"/","plan":%q}`, plan) + "\n"
	}

	for _, c := range []struct {
		flag, line string
		passed     int64
	}{
		{"", lineAt(1, "x"), 1},
		{"pro", lineAt(1, "x"), 3},
		{"free", lineAt(1, "x"), 1},
		{"free", line("pro"), 3},
		{"pro", line("free"), 1},
		{"pro", line(""), 3},
	} {
		p, err := newPlayer(write(t, policies)[0], &funcs{plan: c.flag})
		if err != nil {
			t.Fatal(err)
		}

		playText(t, p, strings.Repeat(c.line, 10))
		if got := p.requests - p.denied; got != c.passed {
			t.Errorf("--plan %q, line %s: got %d passed; want %d", c.flag, c.line, got, c.passed)
		}
	}
}

// An override has its own section in the report, and one without a limit has none.
func TestPlayOverrides(t *testing.T) {
	p := played(t, `policies: [{name: a, key: client, limit: 9/minute, overrides: [
    {limit: 2/minute, subjects: ["ip:192.0.2.0/24"]}, {limit: none, subjects: ["ip:198.51.100.7"]}]}]
`, strings.Repeat(`{"time":1795182936,"client":"192.0.2.7","method":"GET","path":"/"}
{"time":1795182936,"client":"198.51.100.7","method":"GET","path":"/"}
{"time":1795182936,"client":"203.0.113.7","method":"GET","path":"/"}
`, 5))
	if p.requests != 15 || p.denied != 3 {
		t.Errorf("got %d requests, %d denied; want 15, 3", p.requests, p.denied)
	}
	got := printed(p, 0)
	for _, want := range []string{"  requests      10\n", "  2/minute: 1 subject, 1 (100.00 %) denied", "  9/minute: 1 subject, 0 denied"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q", got, want)
		}
	}
}

// The key route equals keyfunc.Route behind a mux with the application's routes, in any
// framework's syntax.
func TestRoutes(t *testing.T) {
	var rs routes
	for _, route := range []string{"/users/", "GET /users/{id}", "GET /users/me", "POST /a/:b", "/files/*"} {
		if err := rs.add(route); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []struct{ method, url, want string }{
		{"GET", "/users/7", "route:GET /users/{id}"},
		{"HEAD", "/users/7", "route:GET /users/{id}"},
		{"PUT", "/users/7", "route:/users/"},
		{"GET", "/users/me", "route:GET /users/me"},
		{"GET", "//users/./me", "route:GET /users/me"},
		{"GET", "/USERS/me", ""},
		{"POST", "/a/1", "route:POST /a/{b}"},
		{"GET", "/files/x/y", "route:/files/{path...}"},
		{"CONNECT", "/users/", ""},
		{"GET", "/x", ""},
	} {
		r := httptest.NewRequest(c.method, c.url, nil)
		if got, err := rs.key(r); got != c.want || err != nil || r.Pattern != "" {
			t.Errorf("%s %s: got %q, %v, pattern %q; want %q", c.method, c.url, got, err, r.Pattern, c.want)
		}
	}

	for _, c := range []struct{ route, want string }{
		{"users", "missing /"},
		{"GET /users/{name}", "pattern \"GET /users/{name}\" conflicts with pattern \"GET /users/{id}\":"},
		{"GET /{a}/{a}", "duplicate wildcard name"},
	} {
		if err := rs.add(c.route); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", c.route, err, c.want)
		}
	}

	if got, err := new(routes).key(httptest.NewRequest("GET", "/", nil)); got != "" || err != nil {
		t.Errorf("without routes: got %q, %v; want anonymous", got, err)
	}
}

// Without --route the policies' own routes are used.
func TestPlayRoutesOfPolicies(t *testing.T) {
	p := played(t, `
policies:
  - {name: a, key: client, limit: 9/minute, routes: ["GET /x", "GET /{y}/z"]}
  - {name: b, key: client, limit: 9/minute, routes: ["GET /x", "GET /y/{z}"]} # overlaps with the other
  - {name: route, key: route, limit: 9/minute}
`, lineAt(1, "x")+lineAt(1, "y/z")+lineAt(1, "y/y")+lineAt(1, "other"))
	if got := p.byName["route"]; got.requests != 4 || got.anonymous != 2 {
		t.Errorf("got %d requests, %d anonymous; want 4, with y/y and other anonymous", got.requests, got.anonymous)
	}
}

// played returns a player that has played a log.
func played(t *testing.T, policies, log string) *player {
	t.Helper()
	p, err := newPlayer(write(t, policies)[0], new(funcs))
	if err != nil {
		t.Fatal(err)
	}
	playText(t, p, log)
	return p
}

func playText(t *testing.T, p *player, log string) {
	t.Helper()
	f := newFields()
	f.prepare()
	sources, err := openAll([]string{"-"}, strings.NewReader(log), f, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if s, stopped := p.playAll(t.Context(), sources); s.err != nil || s.malformed > 0 || stopped {
		t.Fatalf("got %+v, stopped %t", s, stopped)
	}
}
