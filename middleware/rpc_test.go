package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestRPC(t *testing.T) {
	for route, right := range map[string]bool{
		"/pkg.Service/Method":        true,
		"POST /pkg.Service/Method":   true,
		"POST\t/pkg.Service/Method":  true,
		"/pkg.Service/*":             true,
		"/pkg.*":                     true,
		"/pkg.Service/":              true,
		"/":                          true,
		"/*":                         true,
		"/*path":                     true,
		"POST /*path":                true,
		"/{rest...}":                 true,
		"/pkg.Service/{method...}":   true,
		"/pkg.Service/M/{rest...}":   true,
		"/pkg.Service/Method/":       true,
		"/pkg.Service/Method/*":      true,
		"/pkg.Service/Method/other":  false,
		"/pkg.Service/{method}":      false,
		"/pkg.Service/:method":       false,
		"/{service}/Method":          false,
		"/:service/Method":           false,
		"pkg.Service/Method":         false,
		"/pkg.Service":               false,
		"GET /pkg.Service/Method":    false,
		"a.example/pkg.S/Method":     false,
		"/api/v1/pkg.Service/Method": false,
		"pkg.Service.Method":         false,
		"/pkg.Service/Method?q=1":    false,
		"/pkg.*/Method":              false,
	} {
		p := middleware.Policy{Name: "calls", Key: key("k"), Limit: five, Routes: []string{"/pkg.Service/Other", route}}
		_, err := middleware.New(middleware.Config{Store: gcra.NewMemory(), RPC: true}, p)
		if right && err != nil {
			t.Errorf("%s: got %v; want no error", route, err)
		}

		want := `policy "calls": Routes[1] is "` + route + wantCall
		if !right && (err == nil || err.Error() != "ratelimit: "+want) {
			t.Errorf("%s: got %v; want %s alone", route, err, want)
		}
	}
}

// wantCall is what an error says after a route that matches no call.
const wantCall = `", which matches no call; want one such as "/package.Service/Method", or "/package.Service/*" for a service`

// All mistakes are reported at once, and Reload checks as New does.
func TestRPCMistakes(t *testing.T) {
	wrong := middleware.Policy{Name: "calls", Key: key("k"), Routes: []string{"pkg.Service/Method"}}
	cfg := middleware.Config{Store: gcra.NewMemory(), RPC: true, Deny: func(http.ResponseWriter, *http.Request, *middleware.Decision) {}}
	_, err := middleware.New(cfg, wrong)

	for _, want := range []string{"Deny is set", "Limit is missing", wantCall} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
	}

	right := middleware.Policy{Name: "calls", Key: key("k"), Limit: five}
	l, err := middleware.New(middleware.Config{Store: gcra.NewMemory(), RPC: true}, right)
	if err != nil {
		t.Fatal(err)
	}

	wrong.Limit = five
	if err := l.Reload(wrong); err == nil || !strings.Contains(err.Error(), wantCall) {
		t.Errorf("Reload: got %v; want the mistake", err)
	}
}

// For a limiter without Config.RPC, the first Admit logs a policy that limits no call, and
// Deny. A policy that limits some calls is no mistake, as the limiter may serve HTTP too.
func TestAdmitWithoutRPC(t *testing.T) {
	log := new(diagtest.Log)
	policy := func(name string, routes ...string) middleware.Policy {
		return middleware.Policy{Name: name, Key: key("k"), Limit: five, Routes: routes}
	}
	cfg := middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger(), Deny: func(http.ResponseWriter, *http.Request, *middleware.Decision) {}}
	l := limiter(t, cfg, policy("all"), policy("login", "GET /login"), policy("both", "GET /search", "/pkg.Service/Search"))
	for range 2 {
		l.Admit(http.Header{}, httptest.NewRequest(http.MethodPost, "/pkg.Service/Search", nil))
	}
	lines := log.Lines()
	if len(lines) != 2 || lines[0].Code() != diag.NotForRPC || lines[0].Attrs["policy"] != "login" || !strings.Contains(lines[1].Text, "Config.Deny") {
		t.Errorf("got %v; want a line about login and one about Deny", lines)
	}
}

func TestAdmit(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "calls", Key: key("k"), Limit: gcra.PerMinute(1)})

	for _, want := range []struct {
		allowed                bool
		remaining, reset, wait string
	}{
		{true, "0", "60", ""},
		{false, "0", "60", "60"},
	} {
		h := http.Header{}
		r, denied := l.Admit(h, httptest.NewRequest(http.MethodPost, "/pkg.Service/Method", nil))
		if (denied == nil) != want.allowed || h.Get("RateLimit-Remaining") != want.remaining || h.Get("RateLimit-Reset") != want.reset || h.Get("Retry-After") != want.wait {
			t.Errorf("got %+v, fields %v; want %+v", denied, h, want)
		}

		if carried := middleware.FromContext(r.Context()); carried == nil || carried.Allowed != want.allowed || len(carried.Results) != 1 {
			t.Errorf("Decision of the context: got %+v; want Allowed %t", carried, want.allowed)
		}
	}
}

// A call that ends while it is held back is denied, by the error of its context.
func TestAdmitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "calls", Key: key("k"), Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})
		l.Decide(get("/"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		start := time.Now()
		_, d := l.Admit(http.Header{}, get("/").WithContext(ctx))
		if waited := time.Since(start); d == nil || d.Allowed || d.Delay != time.Second || d.Err != context.Canceled || waited != 300*time.Millisecond {
			t.Errorf("got %+v after %v; want a denial by context.Canceled after 300ms of 1s", d, waited)
		}
	})
}

// The Decision of such a call has the time that was measured for observers.
func TestAdmitEndsWithTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(*http.Request) (string, error) { time.Sleep(10 * time.Millisecond); return "k", nil }
		l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Observe: func(*http.Request, *middleware.Decision) {}},
			middleware.Policy{Name: "calls", Key: slow, Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})
		l.Decide(get("/"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		if _, d := l.Admit(http.Header{}, get("/").WithContext(ctx)); d == nil || d.Err != context.Canceled || d.Took != 10*time.Millisecond {
			t.Errorf("got %+v; want a denial by context.Canceled that took 10ms", d)
		}
	})
}
