package faults

import (
	"net/http"
	"testing"

	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault80NoSpellingOfAPathGetsAFreshBucket(t *testing.T) {
	o := fault(t, "//, /./, %2e, case, slashes, ;x, unicode")
	const burst = 3
	for name, tt := range map[string]struct {
		policy middleware.Policy
		method string
		served string
		paths  []string
	}{
		"by Routes": {middleware.Policy{Name: "all", Key: everybody, Routes: []string{"POST /login"}}, "POST", "POST /login", []string{
			"/login", "//login", "/./login", "/x/../login", "/login/", "/login//", "/LOGIN", "/%6cogin", "/%2flogin", "/login%2f", "/%2e/login",
			"/login/%2e", "/login;x", "/login?x", "/login%20", "/login%00", "/ok/../login", "/ok/%2e%2e/login", "/ｌogin", "/lo%C4%B1gin", "http://other.example/login"}},
		"by Route": {middleware.Policy{Name: "client", Key: keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route)}, "GET", "GET /users/{id}", []string{
			"/users/1", "/users/2", "//users/3", "/./users/4", "/users/a%2Fb", "/USERS/5", "/users/6/", "/users/7;x", "/users/%20", "/x/../users/8", "/users/9?a=b", "/users/é", "/users/%31"}},
	} {
		spell := func(t *testing.T, f framework) {
			policy := tt.policy
			policy.Limit = gcra.PerDay(burst)
			s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{policy}})
			reached := 0
			for range 4 { // so that the bucket is empty whatever spellings are served
				for _, path := range tt.paths {
					a := s.raw(t, tt.method+" "+path+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					if a != nil && a.Header.Get("X-Handled-By") == tt.served {
						reached++
					}
				}
			}
			o.over.Add(int64(max(reached-burst, 0)))
			// Spellings that lead nowhere are counted too: rather one too many.
			if reached < 1 || reached > burst {
				t.Errorf("%s: %d requests reached the handler; want 1 to %d", name, reached, burst)
			}
		}
		eachFramework(t, spell)
		if name == "by Routes" {
			t.Run("route not known", func(t *testing.T) { spell(t, framework{"hidden mux", buildHidden}) })
		}
	}
}

// buildHidden puts something between the limiter and the mux, so that the
// limiter goes by the path.
func buildHidden(l *middleware.Limiter, routes map[string]http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.HandleFunc(pattern, h)
	}
	return vianethttp.From(l)(http.HandlerFunc(mux.ServeHTTP))
}
