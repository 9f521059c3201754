package middleware_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// debugLog returns a logger and a function that returns what was logged since its last call,
// without time and level.
func debugLog(level slog.Level) (logger *slog.Logger, text func() string) {
	var out bytes.Buffer
	logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	}))
	return logger, func() string { defer out.Reset(); return out.String() }
}

// byQuery is a key function that returns the parameter "key" of the request.
func byQuery(r *http.Request) (string, error) {
	if r.URL.Query().Has("fail") {
		return "", errDown
	}
	return r.URL.Query().Get("key"), nil
}

func TestDebugLine(t *testing.T) {
	one := gcra.PerHour(1)
	named := map[string]middleware.Override{
		"key:bad":  {Name: "scraper", Banned: true},
		"key:free": {Limit: gcra.Unlimited()},
	}

	byName := func(subject string) (middleware.Override, bool) { o, ok := named[subject]; return o, ok }
	user := middleware.Policy{Name: "user", Key: byQuery, Limit: one, Override: byName}
	all := middleware.Policy{Name: "all", Key: keyfunc.Const("all"), Limit: gcra.PerHour(100)}
	with := func(p middleware.Policy, change func(*middleware.Policy)) middleware.Policy { change(&p); return p }

	for _, test := range []struct {
		name     string
		policies []middleware.Policy
		query    string
		want     string // of the last of two requests
	}{
		{
			"all policies passed", []middleware.Policy{all}, "",
			`msg="ratelimit: allowed" policy.all.subject=const:all policy.all.left=98 policy.all.from=*gcra.Memory`,
		},
		{
			"one denied", []middleware.Policy{all, user}, "key=ip:192.0.2.7",
			`msg="ratelimit: denied" denied_by=user policy.all.subject=const:all policy.all.left=99 policy.all.from=*gcra.Memory policy.user.subject=ip:192.0.2.7 policy.user.left=0 policy.user.from=*gcra.Memory`,
		},
		{
			"two denied", []middleware.Policy{user, with(all, func(p *middleware.Policy) { p.Limit = one })}, "key=",
			`msg="ratelimit: denied" denied_by="user, all" policy.user.subject="" policy.user.left=0 policy.user.from=*gcra.Memory policy.all.subject=const:all policy.all.left=0 policy.all.from=*gcra.Memory`,
		},
		{
			"a shadow", []middleware.Policy{with(user, func(p *middleware.Policy) { p.Shadow = true })}, "key=key:a",
			`msg="ratelimit: allowed" policy.user.subject=key:a policy.user.left=0 policy.user.from=*gcra.Memory policy.user.shadow=true`,
		},
		{"no policy applied", []middleware.Policy{user}, "key=key:free", `msg="ratelimit: allowed"`},
		{
			"a ban", []middleware.Policy{all, user}, "key=key:bad",
			`msg="ratelimit: denied" denied_by=user policy.all.subject=const:all policy.all.from="not asked" policy.user.subject=key:bad policy.user.from=ban`,
		},
		{
			"FailLocal", []middleware.Policy{user}, "fail",
			`msg="ratelimit: denied" denied_by=user policy.user.subject="" policy.user.left=0 policy.user.from="local share"`,
		},
		{
			"FailOpen", []middleware.Policy{with(user, func(p *middleware.Policy) { p.OnFailure = middleware.FailOpen })}, "fail",
			`msg="ratelimit: allowed" policy.user.subject="" policy.user.from="failure mode open"`,
		},
		{
			"FailClosed", []middleware.Policy{all, with(user, func(p *middleware.Policy) { p.OnFailure = middleware.FailClosed })}, "fail",
			`msg="ratelimit: denied" denied_by=user policy.all.subject=const:all policy.all.from="not asked" policy.user.subject="" policy.user.from="failure mode closed"`,
		},
	} {
		logger, text := debugLog(slog.LevelDebug)
		h := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Logger: logger}, test.policies...)(http.NotFoundHandler())
		h.ServeHTTP(httptest.NewRecorder(), get("/?"+test.query))
		text()

		h.ServeHTTP(httptest.NewRecorder(), get("/?"+test.query))
		if got := text(); got != test.want+"\n" {
			t.Errorf("%s: got\n%swant\n%s", test.name, got, test.want)
		}
	}
}

// Where the answers come from, with a real Redis: the server, the denial cache, and while the server is
// away this process.
func TestDebugLineOfRedis(t *testing.T) {
	server := redistest.Start(t)
	store, err := redisstore.Open(server.URL(), redisstore.Config{Timeout: 10 * time.Second, Logger: unread})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })

	logger, text := debugLog(slog.LevelDebug)
	h := ratelimit.New(ratelimit.Config{Store: store, Logger: logger, Instances: 1},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)})(http.NotFoundHandler())

	check := func(address, want string) {
		t.Helper()
		r := get("/")
		r.RemoteAddr = address + ":1234"
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got := text(); got != want+"\n" {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}

	check("192.0.2.7", `msg="ratelimit: allowed" policy.client.subject=ip:192.0.2.7 policy.client.left=0 policy.client.from=*redisstore.Store`)
	check("192.0.2.7", `msg="ratelimit: denied" denied_by=client policy.client.subject=ip:192.0.2.7 policy.client.left=0 policy.client.from="denial cache"`)

	server.Kill()
	check("192.0.2.8", `msg="ratelimit: allowed" policy.client.subject=ip:192.0.2.8 policy.client.left=0 policy.client.from="local share"`)
	check("192.0.2.8", `msg="ratelimit: denied" denied_by=client policy.client.subject=ip:192.0.2.8 policy.client.left=0 policy.client.from="denial cache"`)
}

// A subject that may be a secret is logged as its hash.
func TestDebugLineKeepsSecrets(t *testing.T) {
	logger, text := debugLog(slog.LevelDebug)
	route := func(*http.Request) (string, error) { return "route:/", nil }
	h := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Logger: logger},
		ratelimit.Policy{Name: "a", Key: byQuery, Limit: five},
		ratelimit.Policy{Name: "b", Key: keyfunc.Join(byQuery, route), Limit: five},
		ratelimit.Policy{Name: "c", Key: keyfunc.Join(keyfunc.Join(byQuery, route), route), Limit: five},
		ratelimit.Policy{Name: "d", Key: keyfunc.Join(route, route, route, route, byQuery), Limit: five},
	)(http.NotFoundHandler())

	for key, hidden := range map[string]bool{
		"sk_live_4242":                        true,
		"Bearer:secret":                       true, // no kind: upper case
		":secret":                             true,
		"ip:192.0.2.7":                        false,
		"user-2:7":                            false,
		"":                                    false,
		"key:" + strings.Repeat("secret", 11): true,
	} {
		h.ServeHTTP(httptest.NewRecorder(), get("/?key="+key))
		line := text()
		a, more, _ := strings.Cut(line, "policy.b.")
		b, more, _ := strings.Cut(more, "policy.c.")
		if strings.Count(more, "subject=%#") != 2 {
			t.Errorf("key %q: got %s; want hashes of parts that are not looked at", key, more)
		}

		for _, part := range []string{a, b} {
			if strings.Contains(part, key) == hidden || strings.Contains(part, `.subject=%#`) != hidden && part == a {
				t.Errorf("key %q: got %s; want hidden %t", key, part, hidden)
			}
		}
	}
}

// silent is a handler that is not enabled.
type silent struct{ slog.Handler }

func (silent) Enabled(context.Context, slog.Level) bool { return false }

// With Debug off a decision costs no allocation more, and no Override is asked again.
func TestDebugOffCostsNothing(t *testing.T) {
	measure := func(logger *slog.Logger) (allocations float64, asked int) {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: logger, Override: func(string, string) (middleware.Override, bool) {
			asked++
			return middleware.Override{}, false
		}}, middleware.Policy{Name: "all", Key: keyfunc.Const("all"), Limit: gcra.PerSecond(1000)})

		w, r := &discard{http.Header{}}, get("/")
		allocations = testing.AllocsPerRun(99, func() { l.Allow(w, r) })
		return allocations, asked
	}

	if n, asked := measure(slog.New(silent{})); n > 3 || asked != 100 {
		t.Errorf("got %v allocations a decision, %d calls of Override for 100; want 3 (the request's state, the values of the fields, and the text of Remaining), and 100", n, asked)
	}

	logger, text := debugLog(slog.LevelInfo)
	if _, asked := measure(logger); asked != 100 || text() != "" {
		t.Errorf("at level Info: %d calls of Override; want 100, and no line", asked)
	}
}

// docs/troubleshooting.md shows the line as it is printed.
func TestDebugLineOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}

	logger, text := debugLog(slog.LevelDebug)
	h := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Logger: logger},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2)},
	)(http.NotFoundHandler())

	for range 3 {
		text()
		r := get("/")
		r.RemoteAddr = "192.0.2.7:1234"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}

	line := strings.ReplaceAll(strings.TrimSpace(text()), "*gcra.Memory", "*redisstore.Store")
	if !strings.Contains(string(page), "level=DEBUG "+line+"\n") {
		t.Errorf("the page lacks level=DEBUG %s", line)
	}
}
