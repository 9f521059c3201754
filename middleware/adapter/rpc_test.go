package adapter_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// A route that matches no call is an error.
func TestNewRPC(t *testing.T) {
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
	} {
		_, err := adapter.NewRPC(middleware.Config{Store: gcra.NewMemory()}, middleware.Policy{
			Name: "calls", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{"/pkg.Service/Other", route},
		})
		if right && err != nil {
			t.Errorf("%s: got %v; want no error", route, err)
		}

		want := `ratelimit: policy "calls": Routes[1] is "` + route + wantCall
		if !right && (err == nil || err.Error() != want) {
			t.Errorf("%s: got %v; want %s alone", route, err, want)
		}
	}
}

// wantCall is what an error says after a route that matches no call.
const wantCall = `", which matches no call; want one such as "/package.Service/Method", or "/package.Service/*" for a service`

// published is a store that operators read.
type published struct {
	gcra.Store
	limiters int
}

func (p *published) Publish(any, func() string) { p.limiters++ }

func (p *published) CheckLimit(l gcra.Limit) error {
	if l.IsQuota() {
		return errors.New("no quotas")
	}
	return nil
}

// All mistakes are reported at once, with New's, also those that the store finds. No limiter is built of what has mistakes.
func TestNewRPCMistakes(t *testing.T) {
	store := &published{Store: gcra.NewMemory()}
	policy := middleware.Policy{Name: "calls", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5)}
	if _, err := adapter.NewRPC(middleware.Config{Store: store, BanStatus: http.StatusForbidden}, policy); err == nil || store.limiters > 0 {
		t.Errorf("got %v and %d limiters on the store; want an error and none", err, store.limiters)
	}
	policy.Limit = gcra.Quota(5, gcra.Daily)
	if _, err := adapter.NewRPC(middleware.Config{Store: store, BanStatus: http.StatusForbidden}, policy); err == nil || !strings.Contains(err.Error(), "no quotas") {
		t.Errorf("got %v; want the store's mistake too", err)
	}

	_, err := adapter.NewRPC(middleware.Config{BanStatus: http.StatusForbidden, Deny: func(http.ResponseWriter, *http.Request, *middleware.Decision) {}},
		middleware.Policy{Name: "calls", Key: keyfunc.RemoteAddr, Routes: []string{"pkg.Service/Method", "pkg"}})
	for _, want := range []string{"Store is nil", "Limit is missing", `Routes[1] is "pkg": it has no "/"`, "Deny is set", "BanStatus is set", `Routes[0] is "pkg.Service/Method` + wantCall} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
	}
}
