package sitetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// ample is a limit that no test reaches.
var ample = gcra.PerSecond(10_000)

// expectLine wants one line, with the code, its level, its help, and for each
// "name=text" an attribute of that name that contains the text. Without a code it
// wants no line.
func expectLine(t *testing.T, log *diagtest.Log, code diag.Code, attrs ...string) {
	t.Helper()
	lines := log.Lines()
	if code == "" {
		if len(lines) > 0 {
			t.Errorf("got %v; want no line", lines)
		}
		return
	}

	if len(lines) != 1 {
		t.Fatalf("got %d lines: %v; want one of %s", len(lines), lines, code)
	}
	line := lines[0]
	if line.Code() != code || line.Level != slog.LevelWarn || !strings.HasSuffix(line.Attrs["help"], "#"+string(code)) {
		t.Errorf("got %v; want code %s, its help and level WARN", line, code)
	}

	for _, attr := range attrs {
		name, text, _ := strings.Cut(attr, "=")
		if name == "msg" && strings.Contains(line.Text, text) {
			continue
		}
		if text == "" || !strings.Contains(line.Attrs[name], text) {
			t.Errorf("got %v; want %s with %q", line, name, text)
		}
	}
}

func fails(*http.Request) (string, error)    { return "", errors.New("no session today") }
func panics(r *http.Request) (string, error) { return r.Context().Value("missing").(string), nil }
func byName(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }
func fixed(l gcra.Limit) func(*http.Request) gcra.Limit {
	return func(*http.Request) gcra.Limit { return l }
}

// reports is a key function that reports a problem on each request, as functions of
// keyfunc do.
func reports(code diag.Code, key string) keyfunc.Func {
	return func(r *http.Request) (string, error) {
		notice.Report(r.Context(), code, "found by the key")
		return key, nil
	}
}

// down is a store whose calls fail, or panic.
func down(err error, panics bool) *doubles.Store {
	s := doubles.NewStore()
	s.Err, s.Panics = err, panics
	return s
}

// loggedError is the error of a store that logs by itself, as redisstore.Store does.
type loggedError struct{}

func (loggedError) Error() string { return "redis is away" }
func (loggedError) Logged() bool  { return true }

// Each wrong set-up logs one line within a hundred requests, and its correct counterpart none, in every framework.
func TestDiagnostics(t *testing.T) {
	race.Skip(t)

	plan := func(r *http.Request) gcra.Limit {
		if r.Header.Get("X-Plan") == "" {
			return gcra.Limit{}
		}
		return ample
	}

	for _, test := range []struct {
		name   string
		policy middleware.Policy
		config middleware.Config
		header func(i int) []string // of request i; nil means a client of one name
		code   diag.Code
		attrs  []string
	}{
		{name: "correct", policy: middleware.Policy{Key: byName}},

		{name: "Key fails", policy: middleware.Policy{Key: fails}, code: diag.PolicyFailed,
			attrs: []string{"policy=p", "function=Key", "error=no session today", "requests=one shared bucket"}},
		{name: "Key panics, closed", policy: middleware.Policy{Key: panics, OnFailure: middleware.FailClosed}, code: diag.PolicyFailed,
			attrs: []string{"function=Key", "requests=denied with 503", "error=panic", "stack=diagnostics_test.go"}},
		{name: "Skip panics", policy: middleware.Policy{Key: byName, Skip: func(*http.Request) bool { panic("skip") }}, code: diag.PolicyFailed,
			attrs: []string{"function=Skip", "stack=diagnostics_test.go"}},
		{name: "a cost above the burst", policy: middleware.Policy{Key: byName, Limit: ample, Cost: func(*http.Request) int64 { return ample.Count + 1 }}, code: diag.CostAboveBurst,
			attrs: []string{"policy=p", "cost=10001", "limit=10000/second"}},
		{name: "Cost is negative", policy: middleware.Policy{Key: byName, Cost: func(*http.Request) int64 { return -1 }}, code: diag.PolicyFailed,
			attrs: []string{"function=Cost", "error=cost of the request is -1", "requests=the whole burst"}},
		{name: "LimitFor is invalid", policy: middleware.Policy{Key: byName, LimitFor: fixed(gcra.Limit{Burst: 5})}, code: diag.PolicyFailed,
			attrs: []string{"function=LimitFor"}},

		{name: "the store fails", policy: middleware.Policy{Key: byName}, config: middleware.Config{Store: down(doubles.ErrDown, false)}, code: diag.StoreFailed,
			attrs: []string{"store=*doubles.Store", "error=10.0.0.7", "requests=by this server alone"}},
		{name: "the store panics", policy: middleware.Policy{Key: byName}, config: middleware.Config{Store: down(errors.New("index out of range"), true)}, code: diag.StoreFailed,
			attrs: []string{"error=panic: index out of range", "stack=doubles.go"}},
		{name: "the store logs by itself", policy: middleware.Policy{Key: byName}, config: middleware.Config{Store: down(loggedError{}, false)}},

		{name: "no request has a key", policy: middleware.Policy{Key: byName}, header: func(int) []string { return nil }, code: diag.AnonymousOnly,
			attrs: []string{"policy=p"}},
		{name: "one request has a key", policy: middleware.Policy{Key: byName}, header: func(i int) []string {
			if i == 50 {
				return []string{"X-Client: alice"}
			}
			return nil
		}},

		{name: "LimitFor forgets", policy: middleware.Policy{Key: byName, LimitFor: plan}, header: func(i int) []string {
			return []string{"X-Client: alice", "X-Plan: " + []string{"", "gold"}[i%2]}
		}, code: diag.PolicyFailed, attrs: []string{"policy=p"}},
		{name: "LimitFor forgets, and there is a Limit", policy: middleware.Policy{Key: byName, Limit: ample, LimitFor: plan}, header: func(int) []string {
			return []string{"X-Client: alice"}
		}, code: diag.PolicyFailed, attrs: []string{"policy=p"}},
		{name: "LimitFor exempts a client", policy: middleware.Policy{Key: byName, LimitFor: func(r *http.Request) gcra.Limit {
			if limit := plan(r); limit != (gcra.Limit{}) {
				return limit
			}
			return gcra.Unlimited()
		}}, header: func(i int) []string {
			return [][]string{{"X-Client: alice", "X-Plan: gold"}, {"X-Client: monitor"}}[i%2]
		}},

		{name: "no request has an identity", policy: middleware.Policy{Key: keyfunc.Subject(func(context.Context) string { return "" })},
			code: diag.AnonymousOnly, attrs: []string{"policy=p", "msg=none of the first 100 requests had a user"}},
		{name: "no request has an identity, but an address",
			policy: middleware.Policy{Key: keyfunc.First(keyfunc.Subject(func(context.Context) string { return "" }), keyfunc.RemoteAddr)},
			code:   diag.AnonymousOnly},

		{name: "RemoteAddr behind a proxy", policy: middleware.Policy{Key: keyfunc.RemoteAddr},
			header: func(int) []string { return []string{"X-Forwarded-For: 203.0.113.9"} },
			code:   diag.ProxyIgnored, attrs: []string{`hint=keyfunc.TrustedProxies("127.0.0.1")`}},
		{name: "a proxy that is not listed", policy: middleware.Policy{Key: keyfunc.TrustedProxies("10.0.0.0/8")},
			header: func(int) []string { return []string{"X-Forwarded-For: 203.0.113.9"} },
			code:   diag.ProxyIgnored, attrs: []string{`hint=keyfunc.TrustedProxies("127.0.0.1")`}},
		{name: "a proxy that is listed", policy: middleware.Policy{Key: keyfunc.TrustedProxies("127.0.0.0/8")},
			header: func(int) []string { return []string{"X-Forwarded-For: 203.0.113.9"} }},
		{name: "a proxy that is counted on", policy: middleware.Policy{Key: keyfunc.TrustedHops(1)},
			header: func(int) []string { return []string{"X-Forwarded-For: 203.0.113.9"} }},
		{name: "a proxy too many is counted on", policy: middleware.Policy{Key: keyfunc.TrustedHops(2)},
			header: func(int) []string { return []string{"X-Forwarded-For: 203.0.113.9"} },
			code:   diag.ProxyIgnored, attrs: []string{"hint=keyfunc.TrustedHops(1)"}},
		{name: "a proxy with a header of its own that is not listed", policy: middleware.Policy{Key: keyfunc.AddrHeader("X-Real-IP", "10.0.0.0/8")},
			header: func(int) []string { return []string{"X-Real-IP: 203.0.113.9"} },
			code:   diag.ProxyIgnored, attrs: []string{`hint=keyfunc.AddrHeader("X-Real-Ip", "127.0.0.1")`}},
		{name: "Forwarded behind a proxy with X-Forwarded-For", policy: middleware.Policy{Key: keyfunc.Forwarded("127.0.0.0/8")},
			header: func(int) []string { return []string{"X-Forwarded-For: 203.0.113.9"} },
			code:   diag.ProxyIgnored, attrs: []string{`hint=keyfunc.TrustedProxies("127.0.0.1")`}},
		{name: "RemoteAddr without a proxy", policy: middleware.Policy{Key: keyfunc.RemoteAddr}},

		{name: "a token without exp", policy: middleware.Policy{Key: reports(diag.JWTRejected, "k")}, code: diag.JWTRejected, attrs: []string{"policy=p", "msg=found by the key"}},
	} {
		frameworks := sitetest.Frameworks[:1]
		if test.name == "correct" || test.name == "Key panics, closed" {
			frameworks = sitetest.Frameworks
		}
		for _, f := range frameworks {
			t.Run(test.name+"/"+f.Name, func(t *testing.T) {
				log := new(diagtest.Log)
				test.config.Logger = log.Logger()
				test.policy.Name = "p"
				if test.policy.Limit == (gcra.Limit{}) && test.policy.LimitFor == nil {
					test.policy.Limit = ample
				}

				s := sitetest.Start(t, sitetest.Config{Build: f.Build, Config: test.config, Policies: []middleware.Policy{test.policy}})
				for i := range 100 {
					header := []string{"X-Client: alice"}
					if test.header != nil {
						header = test.header(i)
					}
					s.Do(t, "GET /ok", header...)
				}
				expectLine(t, log, test.code, test.attrs...)
			})
		}
	}
}

// A client that hangs up is not a problem of the set-up, even if its Key fails.
func TestDiagnosticsClientGone(t *testing.T) {
	log := new(diagtest.Log)
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()}, middleware.Policy{Name: "p", Limit: ample,
		Key: func(r *http.Request) (string, error) { return "", r.Context().Err() }}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Allow(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	expectLine(t, log, "")
}

// The first hundred Decides report what their key functions find, and later a
// sample does.
func TestDiagnosticsOfDecide(t *testing.T) {
	log := new(diagtest.Log)
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
		middleware.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: ample}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.1.2.3:4567"
	for range 100 {
		l.Decide(r)
	}
	expectLine(t, log, "")
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	for range 10_000 { // one in 64 is looked at by then: all miss it once in 10^68 runs
		l.Decide(r)
	}
	expectLine(t, log, diag.ProxyIgnored, `hint=TrustedProxies("10.1.2.3")`)
}

// A peer with a public address is a client, whose fields mean nothing.
func TestDiagnosticsPublicPeer(t *testing.T) {
	log := new(diagtest.Log)
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
		middleware.Policy{Name: "p", Key: keyfunc.First(keyfunc.TrustedProxies("10.0.0.0/8")), Limit: ample},
		middleware.Policy{Name: "q", Key: keyfunc.RemoteAddr, Limit: ample}))
	r := httptest.NewRequest(http.MethodGet, "/", nil) // from 192.0.2.1
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	l.Allow(httptest.NewRecorder(), r)
	expectLine(t, log, "")
}

// The limiter on the whole site, and once more on a group of its routes.
func TestDiagnosticsLimiterTwice(t *testing.T) {
	newLimiter := func(log *diagtest.Log, name string) *middleware.Limiter {
		return middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
			middleware.Policy{Name: name, Key: sitetest.Everybody, Limit: ample}))
	}

	for _, f := range sitetest.Frameworks {
		for _, twice := range []bool{true, false} {
			log := new(diagtest.Log)
			a := sitetest.App{Outer: newLimiter(log, "outer"), Behind: func() {}, Routes: map[string]http.HandlerFunc{
				"GET /ok": func(http.ResponseWriter, *http.Request) {}, "GET /inner/x": func(http.ResponseWriter, *http.Request) {}}}
			a.Inner = a.Outer
			if !twice {
				a.Inner = newLimiter(log, "inner")
			}
			s := &sitetest.Site{Server: httptest.NewServer(f.Build(a)), Client: new(http.Transport)}
			defer s.Close()
			s.Do(t, "GET /ok")
			expectLine(t, log, "")
			for range 3 {
				s.Do(t, "GET /inner/x")
			}

			t.Run(f.Name, func(t *testing.T) {
				if twice {
					expectLine(t, log, diag.LimiterTwice, "policy=outer")
				} else {
					expectLine(t, log, "")
				}
			})
		}
	}

	store := gcra.NewMemory()
	alike := func(log *diagtest.Log) func(http.Handler) http.Handler {
		return vianethttp.New(middleware.Config{Store: store, Logger: log.Logger()}, middleware.Policy{Name: "p", Key: sitetest.Everybody, Limit: ample})
	}

	for name, limits := range map[string]func(*diagtest.Log) (inner, outer func(http.Handler) http.Handler){
		"one limiter": func(log *diagtest.Log) (inner, outer func(http.Handler) http.Handler) {
			limit := vianethttp.From(newLimiter(log, "p"))
			return limit, limit
		},
		"two that are alike": func(log *diagtest.Log) (inner, outer func(http.Handler) http.Handler) { return alike(log), alike(log) },
	} {
		log := new(diagtest.Log)
		inner, outer := limits(log)
		s := httptest.NewServer(outer(inner(http.NotFoundHandler())))
		defer s.Close()

		for range 3 {
			res, err := http.Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}

		t.Run(name, func(t *testing.T) { expectLine(t, log, diag.LimiterTwice) })
	}
}

// The routes of chi are known to its adapter, and not to net/http's in Use.
func TestDiagnosticsRouteInChi(t *testing.T) {
	hello := func(http.ResponseWriter, *http.Request) {}
	routes := func(r chi.Router) { r.Get("/a", hello); r.Get("/b", hello) }

	for where, mount := range map[string]func(r chi.Router, limit func(http.Handler) http.Handler){
		"Use": func(r chi.Router, limit func(http.Handler) http.Handler) { r.Use(limit); r.Route("/admin", routes) },
		"Use of a mount": func(r chi.Router, limit func(http.Handler) http.Handler) {
			r.Route("/admin", func(r chi.Router) { r.Use(limit); routes(r) })
		},
		"With in front of one": func(r chi.Router, limit func(http.Handler) http.Handler) { r.With(limit).Route("/admin", routes) },
		"Group with a mount": func(r chi.Router, limit func(http.Handler) http.Handler) {
			r.Group(func(r chi.Router) { r.Use(limit); r.Route("/admin", routes) })
		},
	} {
		for name, adapter := range map[string]struct {
			from func(*middleware.Limiter) func(http.Handler) http.Handler
			code diag.Code
		}{"net/http": {vianethttp.From, diag.RouteUnknown}, "chi": {viachi.From, ""}} {
			t.Run(where+"/"+name, func(t *testing.T) {
				log, router := new(diagtest.Log), chi.NewRouter()
				mount(router, adapter.from(middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
					middleware.Policy{Name: "p", Key: keyfunc.Join(sitetest.Everybody, keyfunc.Route), Limit: ample}))))

				s := &sitetest.Site{Server: httptest.NewServer(router), Client: new(http.Transport)}
				defer s.Close()
				for i := range 100 {
					s.Do(t, "GET /admin/"+[]string{"a", "b"}[i%2])
				}
				expectLine(t, log, adapter.code)
			})
		}
	}
}

// A store that is too late is logged, also if the request's own deadline is over.
func TestLateStoreIsLogged(t *testing.T) {
	log := new(diagtest.Log)
	l := middleware.Must(middleware.New(middleware.Config{Store: down(fmt.Errorf("no answer within 50ms: %w", context.DeadlineExceeded), false), Logger: log.Logger()},
		middleware.Policy{Name: "p", Key: sitetest.Everybody, Limit: ample, OnFailure: middleware.FailOpen}))
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		<-ctx.Done()
		l.Decide(r)
		cancel()
	}
	expectLine(t, log, diag.StoreFailed)
}
