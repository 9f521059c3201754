// Package ratelimit_test runs one table of behaviours through every framework,
// over real HTTP.
package ratelimit_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

var (
	once = gcra.PerHour(1)
	two  = gcra.PerHour(2)
)

func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s; want %s", what, g, w)
	}
}

// behaviours are the tests that run in every framework.
var behaviours = []struct {
	name string
	test func(*testing.T, func(sitetest.App) http.Handler)
}{
	{"a denial is a 429 and goes no further", denial},
	{"headers in every form", headers},
	{"HEAD is denied without a body", head},
	{"Deny writes the response", denyOwn},
	{"overrides of a policy file", overrides},
	{"no spelling of a path escapes its limit", spellings},
	{"routes are counted by route", byRoute},
	{"subjects from tokens, anonymous from forgeries", subjects},
	{"a failing store follows OnFailure", storeFails},
	{"a handler refunds or spends more", refundAndSpend},
	{"handlers stream and hijack as without a limiter", streams},
	{"oversized and malformed requests get an orderly answer", malformed},
	{"of concurrent requests exactly the burst passes", concurrent},
}

func TestFrameworks(t *testing.T) {
	for _, f := range sitetest.Frameworks {
		t.Run(f.Name, func(t *testing.T) {
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) { b.test(t, f.Build) })
			}
		})
	}
}

// New of each adapter panics on a mistake, and names it.
func TestNewPanics(t *testing.T) {
	for name, build := range map[string]func(){
		"net/http": func() { vianethttp.New(vianethttp.Config{}) },
		"chi":      func() { viachi.New(viachi.Config{}) },
		"gin":      func() { viagin.New(viagin.Config{}) },
		"echo v4":  func() { viaechov4.New(viaechov4.Config{}) },
		"echo v5":  func() { viaecho.New(viaecho.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "Store is nil") {
					t.Errorf("got %v; want a panic that names the mistake", err)
				}
			}()
			build()
		})
	}
}

// DenyFrom gives a denial to the application's central error handler. If it writes nothing, the status is written.
func TestDenyFrom(t *testing.T) {
	errLimited := errors.New("limited") // or nil
	policy := middleware.Policy{Name: "all", Key: sitetest.Everybody, Limit: once}
	cfg := func(deny func(http.ResponseWriter, *http.Request, *middleware.Decision)) middleware.Config {
		return middleware.Config{Store: gcra.NewMemory(), Deny: deny}
	}

	router := gin.New()
	router.Use(func(c *gin.Context) {
		if c.Next(); c.Errors.Last() != nil {
			c.JSON(-1, "central: "+c.Errors.Last().Error())
		}
	}, viagin.New(cfg(viagin.DenyFrom(func(c *gin.Context, d *viagin.Decision) {
		if errLimited != nil {
			c.Status(d.Status())
			_ = c.Error(errLimited)
		}
	})), policy))
	router.GET("/ok", func(*gin.Context) {})

	v4 := echov4.New()
	v4.HTTPErrorHandler = func(err error, c echov4.Context) { _ = c.JSON(http.StatusTooManyRequests, "central: "+err.Error()) }
	v4.Use(viaechov4.New(cfg(viaechov4.DenyFrom(func(echov4.Context, *viaechov4.Decision) error { return errLimited })), policy))
	v4.GET("/ok", func(echov4.Context) error { return nil })

	v5 := echo.New()
	v5.HTTPErrorHandler = func(c *echo.Context, err error) { _ = c.JSON(http.StatusTooManyRequests, "central: "+err.Error()) }
	v5.Use(viaecho.New(cfg(viaecho.DenyFrom(func(*echo.Context, *viaecho.Decision) error { return errLimited })), policy))
	v5.GET("/ok", func(*echo.Context) error { return nil })

	for name, h := range map[string]http.Handler{"gin": router, "echo v4": v4, "echo v5": v5} {
		errLimited = errors.New("limited")
		for _, want := range []string{`200 ""`, `429 "central: limited"`, `429 ""`} {
			if want == `429 ""` {
				errLimited = nil
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/ok", nil))
			if got := fmt.Sprintf("%d %s", w.Code, cmp.Or(strings.TrimSpace(w.Body.String()), `""`)); got != want || (w.Header().Get("Retry-After") != "") != (w.Code == 429) {
				t.Errorf("%s: got %s, Retry-After %q; want %s", name, got, w.Header().Get("Retry-After"), want)
			}
		}
	}
}

func denial(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{
		{Name: "one", Key: sitetest.Everybody, Limit: once}, {Name: "two", Key: sitetest.Everybody, Limit: two}}})
	expect(t, "statuses", s.Statuses(t, "GET /ok", 2), []int{200, 429})
	handled, behind := s.Handled.Load(), s.Behind.Load()
	a := s.Do(t, "GET /ok")
	expect(t, "handler and later middleware called", []int64{s.Handled.Load(), s.Behind.Load()}, []int64{handled, behind})
	expect(t, "handled", handled, 1)
	expect(t, "status", a.StatusCode, 429)
	expect(t, "content type", a.Header.Get("Content-Type"), "application/problem+json")
	expect(t, "cache control", a.Header.Get("Cache-Control"), "no-store")
	expect(t, "retry", a.Header.Get("Retry-After"), "3600")
	var problem struct {
		Type, Title, Detail string
		Status              int
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(a.Text), &problem); err != nil {
		t.Fatalf("body %q: %v", a.Text, err)
	}
	expect(t, "problem", []any{problem.Type, problem.Status, problem.Violated},
		[]any{"https://iana.org/assignments/http-problem-types#quota-exceeded", 429, []string{"one"}})
	// All or none: denied requests are not charged.
	expect(t, "left of the other policy", s.Last().Results[1].Remaining, 1)
}

func headers(t *testing.T, build func(sitetest.App) http.Handler) {
	const names = "RateLimit-Limit RateLimit-Remaining RateLimit-Reset RateLimit-Policy RateLimit X-RateLimit-Limit X-RateLimit-Remaining X-RateLimit-Reset"
	for _, test := range []struct {
		headers       middleware.Headers
		first, second string
	}{
		{0, `2|1|1800|2;w=3600||||`, `2|0|3600|2;w=3600||||`},
		{middleware.HeadersDraft11, `|||"a";q=2;w=3600, "b";q=9;w=60|"a";r=1;t=1800, "b";r=8;t=7|||`, `|||"a";q=2;w=3600, "b";q=9;w=60|"a";r=0;t=1800, "b";r=7;t=7|||`},
		{middleware.HeadersXRateLimit, `|||||2|1|1800`, `|||||2|0|3600`},
		{middleware.HeadersNone, `|||||||`, `|||||||`},
	} {
		s := sitetest.Start(t, sitetest.Config{Build: build, Config: middleware.Config{Headers: test.headers}, Policies: []middleware.Policy{
			{Name: "a", Key: sitetest.Everybody, Limit: two}, {Name: "b", Key: sitetest.Everybody, Limit: gcra.PerMinute(9)}}})
		for i, want := range []string{test.first, test.second} {
			a := s.Do(t, "GET /ok")
			var got []string
			for _, name := range strings.Fields(names) {
				got = append(got, strings.Join(a.Header.Values(name), "&"))
			}
			expect(t, fmt.Sprintf("headers %04b, request %d", test.headers, i+1), strings.Join(got, "|"), want)
		}
	}
}

func head(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: once}}})
	expect(t, "GET", s.Do(t, "GET /ok").StatusCode, 200)
	a := s.Do(t, "HEAD /ok")
	expect(t, "HEAD", []any{a.StatusCode, a.Text, a.Header.Get("Retry-After")}, []any{429, "", "3600"})
	// On the same connection the next answer must not be taken for the body.
	expect(t, "GET again", s.Do(t, "GET /ok").StatusCode, 429)
}

func denyOwn(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: once}}, Config: middleware.Config{
		Deny: func(w http.ResponseWriter, r *http.Request, d *middleware.Decision) {
			switch r.Header.Get("X-Do") {
			case "nothing":
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour))
			case "framework":
				if c, ok := adapter.Framework[*gin.Context](r.Context()); ok {
					c.AbortWithStatus(http.StatusTeapot)
				} else if c, ok := adapter.Framework[echov4.Context](r.Context()); ok {
					_ = c.NoContent(http.StatusTeapot)
				} else if c, ok := adapter.Framework[*echo.Context](r.Context()); ok {
					_ = c.NoContent(http.StatusTeapot)
				} else {
					w.WriteHeader(http.StatusTeapot)
				}
			default:
				w.WriteHeader(d.Status())
				fmt.Fprintf(w, "wait %v", d.RetryAfter.Round(time.Hour))
			}
		}}})
	s.Do(t, "GET /ok")
	a := s.Do(t, "GET /ok")
	expect(t, "denial", []any{a.StatusCode, a.Text, a.Header.Get("Retry-After"), a.Header.Get("RateLimit-Remaining")}, []any{429, "wait 1h0m0s", "3600", "0"})
	expect(t, "nothing written", s.Do(t, "GET /ok", "X-Do: nothing").StatusCode, 429)
	expect(t, "written to the framework", s.Do(t, "GET /ok", "X-Do: framework").StatusCode, 418)
}

// overrides sends requests of users and of addresses behind a trusted proxy.
func overrides(t *testing.T, build func(sitetest.App) http.Handler) {
	policies, err := policyfile.Parse("policies.yaml", []byte(`
policies:
  - name: client
    key: [user, address]
    limit: 1/hour
    overrides:
      - limit: 2/hour
        subjects: ["sub:alice", "ip:198.51.100.0/24", "ip:2001:db8::/32"]
      - limit: 3/hour
        subjects: ["ip:198.51.100.7", "ip:2001:db8:7::/48"]
      - limit: none
        subjects: ["sub:probe", "ip:192.0.2.7"]
`), policyfile.Funcs{Keys: map[string]keyfunc.Func{
		"user": func(r *http.Request) (string, error) {
			return keyfunc.Subject(func(context.Context) string { return r.Header.Get("X-User") })(r)
		},
		"address": keyfunc.TrustedProxies("127.0.0.1/32"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: policies, Config: middleware.Config{Store: gcra.NewMemory()}})
	for header, want := range map[string][]int{
		"X-User: bob":                            {200, 429, 429, 429},
		"X-User: alice":                          {200, 200, 429, 429},
		"X-User: probe":                          {200, 200, 200, 200},
		"X-Forwarded-For: 203.0.113.1":           {200, 429, 429, 429},
		"X-Forwarded-For: 198.51.100.1":          {200, 200, 429, 429},
		"X-Forwarded-For: 198.51.100.7":          {200, 200, 200, 429},
		"X-Forwarded-For: 2001:db8:1:2::3":       {200, 200, 429, 429},
		"X-Forwarded-For: 2001:db8:7:2::3":       {200, 200, 200, 429},
		"X-Forwarded-For: ::ffff:192.0.2.7":      {200, 200, 200, 200},
		"X-Forwarded-For: 2001:db9::198.51.1.7 ": {200, 429, 429, 429},
	} {
		expect(t, header, s.Statuses(t, "GET /ok", 4, header), want)
	}
	denied := s.Do(t, "GET /ok", "X-User: alice")
	expect(t, "alice's fields", []string{denied.Header.Get("RateLimit-Policy"), denied.Header.Get("Retry-After")}, []string{"2;w=3600", "1800"})
	expect(t, "the probe's field", s.Do(t, "GET /ok", "X-User: probe").Header.Get("RateLimit-Policy"), "")
}

// spellings sends spellings of a path that have escaped limits by path elsewhere.
// A request that reaches the limited handler must be counted, and the plain
// spelling must reach it.
func spellings(t *testing.T, build func(sitetest.App) http.Handler) {
	race.Skip(t)

	paths := []string{"/login", "//login", "/./login", "/x/../login", "/login/", "/login//", "/LOGIN", "/Login", "/%6cogin", "/lo%67in", "/%2flogin", "/%2Flogin", "/login%2f",
		"/%2e/login", "/login/.", "/login/%2e", "/login/x/..", "/login;x", "/login;", "/login%00", "/login%20", "/login?x=/ok", "/login%3f", "/login#x", "/%256cogin", `/\login`, `\login`,
		"/ok/../login", "/ok/%2e%2e/login", "/login/../login", "http://evil.example/login", "HTTP://EVIL/login", "/ｌogin", "/lo\xc4\xb1gin", "*"}
	users := []string{"/users/1", "/users//1", "/users/1/", "/users/a%2Fb", "/USERS/1", "/users/.", "/users/..", "/users/%2e%2e", "/users/;x", "/users/1;x", "/users/%20", "//users/1", "/users/1/2", "/users/"}
	files := []string{"/files/a", "/files/", "/files", "/files//a", "/files/../login", "/files/a/../../login", "/files/%2e%2e/ok", "/FILES/a", "/files/a%2Fb", "//files/a", "/files;x/a"}
	methods := []string{"POST", "GET", "HEAD", "post", "Post", "PUT", "OPTIONS", "CONNECT", "BREW"}
	for _, test := range []struct {
		route, served string // the policy's Routes, and the route as the app has it
		paths         []string
		plain         string
	}{
		{"POST /login", "POST /login", paths, "POST /login"},
		{"/login", "POST /login", paths, "POST /login"},
		{"/users/{id}", "GET /users/{id}", users, "GET /users/1"},
		{"GET /users/:id", "GET /users/{id}", users, "GET /users/1"},
		{"/users/", "GET /users/{id}", users, "GET /users/1"},
		{"/files/", "GET /files/{path...}", files, "GET /files/a"},
		{"GET /files/*", "GET /files/{path...}", files, "GET /files/a"},
		{"GET Files.Example/files/", "GET /files/{path...}", files, "GET /files/a"},
	} {
		s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerMinute(1_000_000), Routes: []string{test.route}}}})
		plain := false
		for _, method := range methods {
			for _, path := range test.paths {
				for _, host := range []string{"files.example", "FILES.example.:8080"} {
					s.Forget()
					a := s.Raw(t, method+" "+path+" HTTP/1.1\r\nHost: "+host+"\r\nX-HTTP-Method-Override: GET\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					if a == nil || a.Header.Get("X-Handled-By") != test.served {
						continue
					}
					plain = plain || method+" "+path == test.plain
					if len(s.Last().Results) == 0 {
						t.Errorf("%s: %s %s (host %s) was served by %s and not counted", test.route, method, path, host, a.Header.Get("X-Handled-By"))
					}
				}
			}
		}
		if !plain {
			t.Errorf("%s: %s never reached its handler", test.route, test.plain)
		}
		expect(t, test.route+": elsewhere", []any{s.Do(t, "GET /ok").StatusCode, len(s.Last().Results)}, []any{200, 0})
	}
}

func byRoute(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{
		{Name: "login", Key: sitetest.Everybody, Limit: once, Routes: []string{"POST /login"}},
		{Name: "users", Key: sitetest.Everybody, Limit: two, Routes: []string{"GET /users/{id}", "POST /ok"}},
	}})
	expect(t, "login", s.Statuses(t, "POST /login", 2), []int{200, 429})
	expect(t, "users", []int{s.Do(t, "GET /users/1").StatusCode, s.Do(t, "GET /users/2").StatusCode, s.Do(t, "GET /users/3").StatusCode}, []int{200, 200, 429})
	expect(t, "same bucket", s.Do(t, "POST /ok").StatusCode, 429)
	expect(t, "no policy", s.Statuses(t, "GET /ok", 3), []int{200, 200, 200})
	expect(t, "the handler sees its route", strings.HasSuffix(s.Do(t, "GET /files/a/b").Header.Get("X-Pattern"), "/files/{path...}") ||
		s.Do(t, "GET /files/a/b").Header.Get("X-Pattern") == "/files/*", true)
}

func subjects(t *testing.T, build func(sitetest.App) http.Handler) {
	secret := []byte("a secret that is long enough for HS256")
	sign := func(method jwt.SigningMethod, key any, subject, issuer string, lives time.Duration) string {
		token, err := jwt.NewWithClaims(method, jwt.RegisteredClaims{
			Subject: subject, Issuer: issuer, ExpiresAt: jwt.NewNumericDate(time.Now().Add(lives))}).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return "Authorization: Bearer " + token
	}
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{{Name: "all", Limit: once,
		Key: keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}, jwt.WithIssuer("us"))}}})
	hs := jwt.SigningMethodHS256
	alice, again := sign(hs, secret, "alice", "us", time.Hour), sign(hs, secret, "alice", "us", 2*time.Hour)
	expect(t, "alice", s.Statuses(t, "GET /ok", 2, alice), []int{200, 429})
	expect(t, "alice with another token", s.Do(t, "GET /ok", again).StatusCode, 429)
	expect(t, "bob", s.Do(t, "GET /ok", sign(hs, secret, "bob", "us", time.Hour)).StatusCode, 200)
	// Anonymous requests share one bucket: the first passes, and no forgery gets a
	// bucket of its own.
	expect(t, "no token", s.Do(t, "GET /ok").StatusCode, 200)
	for name, header := range map[string]string{
		"forged":       sign(hs, []byte("another secret, just as long as it"), "carol", "us", time.Hour),
		"alg none":     sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "carol", "us", time.Hour),
		"expired":      sign(hs, secret, "carol", "us", -time.Hour),
		"wrong issuer": sign(hs, secret, "carol", "them", time.Hour),
		"wrong method": sign(jwt.SigningMethodHS512, secret, "carol", "us", time.Hour),
		"garbage":      "Authorization: Bearer a.b.c",
		"empty":        "Authorization: Bearer ",
	} {
		expect(t, name, s.Do(t, "GET /ok", header).StatusCode, 429)
	}
}

func storeFails(t *testing.T, build func(sitetest.App) http.Handler) {
	for _, test := range []struct {
		mode     middleware.FailureMode
		statuses []int
		limit    string
	}{
		{middleware.FailLocal, []int{200, 200, 429}, "4"}, // a real denial, by this server's share of 2
		{middleware.FailOpen, []int{200, 200, 200}, ""},
		{middleware.FailClosed, []int{503, 503, 503}, ""},
	} {
		s := sitetest.Start(t, sitetest.Config{Build: build, Config: middleware.Config{Store: doubles.Down{}, Instances: 2, Logger: new(diagtest.Log).Logger()},
			Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerHour(4), OnFailure: test.mode}}})
		expect(t, fmt.Sprintf("failure mode %d", test.mode), s.Statuses(t, "GET /ok", 3), test.statuses)
		a := s.Do(t, "GET /ok")
		expect(t, "limit", a.Header.Get("RateLimit-Limit"), test.limit)
		if a.StatusCode == 503 {
			expect(t, "retry", a.Header.Get("Retry-After"), "1")
		}
		if strings.Contains(a.Text+fmt.Sprint(a.Header), "10.0.0.7") {
			t.Errorf("the client sees the cause: %s", a.Text)
		}
		if !errors.Is(s.Last().Err, doubles.ErrDown) {
			t.Errorf("Err: got %v; want the store's", s.Last().Err)
		}
	}
}

func refundAndSpend(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build,
		Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerHour(10)}},
		Handler: func(_ http.ResponseWriter, r *http.Request) {
			d := middleware.FromContext(r.Context())
			var err error
			switch r.Header.Get("X-Do") {
			case "refund":
				err = errors.Join(d.Refund(r.Context()), d.Refund(r.Context()))
			case "spend":
				err = d.Spend(r.Context(), 6, "all")
			}
			if err != nil {
				panic(err)
			}
		},
	})
	for _, step := range []struct{ do, remaining string }{{"", "9"}, {"refund", "8"}, {"spend", "8"}, {"", "1"}, {"spend", "0"}, {"", "0"}} {
		expect(t, "remaining before "+step.do, s.Do(t, "GET /ok", "X-Do: "+step.do).Header.Get("RateLimit-Remaining"), step.remaining)
	}
	expect(t, "at the end", s.Do(t, "GET /ok").StatusCode, 429)
}

func streams(t *testing.T, build func(sitetest.App) http.Handler) {
	more := make(chan struct{})
	s := sitetest.Start(t, sitetest.Config{Build: build,
		Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: gcra.PerHour(10)}},
		Handler: func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if r.Header.Get("Upgrade") != "" {
				conn, rw, err := rc.Hijack()
				if err != nil {
					t.Errorf("hijack: %v", err)
					return
				}
				defer conn.Close()
				rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
				rw.Flush()
				io.CopyN(conn, rw, 5)
				return
			}
			io.WriteString(w, "first")
			if err := rc.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			<-more
			io.WriteString(w, "second")
		},
	})
	res, err := http.Get(s.URL + "/ok")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first" {
		t.Fatalf("got %q, %v; want the first part before the second is written", first, err)
	}
	expect(t, "remaining", res.Header.Get("RateLimit-Remaining"), "9")
	close(more)
	rest, err := io.ReadAll(res.Body)
	expect(t, "rest", []any{string(rest), err}, []any{"second", nil})

	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /ok HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(conn)
	if res, err := http.ReadResponse(br, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("upgrade: got %v, %v; want 101", res, err)
	}
	io.WriteString(conn, "hello")
	echoed := make([]byte, 5)
	_, err = io.ReadFull(br, echoed)
	expect(t, "after the upgrade", []any{string(echoed), err}, []any{"hello", nil})
}

func malformed(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{
		{Name: "token", Limit: gcra.PerMinute(1000), Key: keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return []byte("k"), nil }, []string{"HS256"})},
		{Name: "client", Limit: gcra.PerMinute(1000), Key: func(r *http.Request) (string, error) { return r.Header.Get("X-Key"), nil }},
		{Name: "route", Limit: gcra.PerMinute(1000), Key: keyfunc.Route},
		{Name: "login", Limit: gcra.PerMinute(1000), Key: sitetest.Everybody, Routes: []string{"/login"}},
	}})
	request := func(line string, header ...string) string {
		return line + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
	}
	long := strings.Repeat("a", 8<<10)
	for name, raw := range map[string]string{
		"long path":         request("GET /users/" + long),
		"long path of dots": request("GET /" + strings.Repeat("../", 3000) + "login"),
		"many slashes":      request("GET " + strings.Repeat("/", 8<<10)),
		"escapes":           request("GET /users/" + strings.Repeat("%2e%2F", 2000)),
		"bad escapes":       request("GET /users/%zz%"),
		"NULs":              request("GET /ok", "X-Key: "+strings.Repeat("\x00", 100)),
		"not UTF-8":         request("GET /ok", "X-Key: "+strings.Repeat("\xff\xfe", 100)),
		"long key":          request("GET /ok", "X-Key: "+strings.Repeat("k", 100<<10)),
		"token of 1 MB":     request("GET /ok", "Authorization: Bearer "+strings.Repeat("a.", 1<<19)),
		"token of 900 kB":   request("GET /ok", "Authorization: Bearer "+strings.Repeat("a.", 450<<10)),
		"CONNECT":           request("CONNECT h:443"),
		"OPTIONS *":         request("OPTIONS *"),
		"strange host":      "GET /ok HTTP/1.1\r\nHost: a:b:c:]\r\nConnection: close\r\n\r\n",
	} {
		a := s.Raw(t, raw)
		if a == nil {
			t.Errorf("%s: the server hung up", name)
		} else if a.StatusCode >= 500 && a.StatusCode != http.StatusNotImplemented {
			t.Errorf("%s: got %d, %s", name, a.StatusCode, a.Text)
		}
	}
	if d := s.Last(); d.Err != nil {
		t.Errorf("a client caused a failure: %v", d.Err)
	}
}

func concurrent(t *testing.T, build func(sitetest.App) http.Handler) {
	s := sitetest.Start(t, sitetest.Config{Build: build, Policies: []middleware.Policy{
		{Name: "a", Key: sitetest.Everybody, Limit: gcra.PerHour(20)}, {Name: "b", Key: sitetest.Everybody, Limit: gcra.PerHour(30)}}})
	var passed, denied atomic.Int64
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			res, err := http.Get(s.URL + "/ok")
			if err != nil {
				t.Error(err)
				return
			}
			res.Body.Close()
			switch res.StatusCode {
			case 200:
				passed.Add(1)
			case 429:
				denied.Add(1)
			}
		})
	}
	wg.Wait()
	expect(t, "passed and denied", []int64{passed.Load(), denied.Load()}, []int64{20, 40})
}

// keyfunc.Route returns the same keys in every framework.
func TestSameKeysEverywhere(t *testing.T) {
	for _, f := range sitetest.Frameworks {
		if f.Name == "chi with net/http's adapter" {
			continue // it does not ask chi for the route
		}
		t.Run(f.Name, func(t *testing.T) {
			s := sitetest.Start(t, sitetest.Config{Build: f.Build, Policies: []middleware.Policy{{Name: "route", Key: keyfunc.Route, Limit: gcra.PerMinute(1000)}}})
			for request, want := range map[string]string{
				"GET /ok": "route:GET /ok", "POST /login": "route:POST /login", "GET /users/7": "route:GET /users/{id}",
				"GET /files/a/b": "route:GET /files/{path...}", "GET /users/8?x=y": "route:GET /users/{id}",
			} {
				s.Do(t, request)
				expect(t, request, s.Last().Results[0].Subject, want)
			}
		})
	}
}

// FuzzSpellings invents requests. If a limited handler serves one, it was counted.
func FuzzSpellings(f *testing.F) {
	for _, target := range []string{"/login", "//login", "/x/../login", "/%2e/login", "/lo%67in", "/login;x", "/users/1", "/users//1", "/users/a%2Fb", "/files/", "/files/../login", "http://h/login"} {
		f.Add("POST", target)
		f.Add("GET", target)
	}
	type served struct{ by, counted string }
	var last served
	var handlers []http.Handler
	policy := func(name string, routes ...string) middleware.Policy {
		return middleware.Policy{Name: name, Key: sitetest.Everybody, Limit: gcra.PerMinute(1_000_000), Routes: routes}
	}
	limiter := middleware.Must(middleware.New(middleware.Config{
		Store: gcra.NewMemory(), Headers: middleware.HeadersNone,
		Observe: func(_ *http.Request, d *middleware.Decision) {
			for _, r := range d.Results {
				last.counted += r.Policy + " "
			}
		},
	}, policy("POST /login", "/login"), policy("GET /users/{id}", "GET /users/{name}"), policy("GET /files/{path...}", "/files/")))
	for _, framework := range sitetest.Frameworks {
		a := sitetest.App{Outer: limiter, Behind: func() {}, Routes: map[string]http.HandlerFunc{}}
		for _, pattern := range []string{"POST /login", "GET /users/{id}", "GET /files/{path...}", "GET /other"} {
			a.Routes[pattern] = func(http.ResponseWriter, *http.Request) { last.by = pattern }
		}
		a.Inner = limiter
		handlers = append(handlers, framework.Build(a))
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			t.Skip()
		}
		for i, h := range handlers {
			last = served{}
			h.ServeHTTP(httptest.NewRecorder(), r.Clone(t.Context()))
			if last.by != "" && last.by != "GET /other" && !strings.Contains(last.counted, last.by+" ") {
				t.Errorf("%s: %q %q was served by %s and counted by %q", sitetest.Frameworks[i].Name, method, target, last.by, last.counted)
			}
		}
	})
}
