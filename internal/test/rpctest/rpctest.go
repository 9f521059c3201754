// Package rpctest tests what the adapters of gRPC and Connect have in common.
package rpctest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Adapter is what differs between them.
type Adapter struct {
	// Procedures are of one service: "/package.Service/Method". The first is unary, the others are streams.
	Procedures []string

	// Serve starts a server with the handler behind interceptors: [Authenticate] for unary
	// calls, and the limiters', the outermost first.
	Serve func(t testing.TB, h Handler, limits ...*middleware.Limiter) Call

	// Intercept passes a unary call to the limiter's interceptor alone, and returns its code.
	Intercept func(ctx context.Context, l *middleware.Limiter) (code uint32)
}

// Handler answers a call. send sends a message of a stream. A nil Handler sends one.
type Handler func(ctx context.Context, send func() error) error

// Answer answers a call as h does, or as a nil Handler.
func (h Handler) Answer(ctx context.Context, send func() error) error {
	if h == nil {
		return send()
	}
	return h(ctx, send)
}

// Call makes a call with one message and with the header, and reads the response to its end. What the header
// has under names that end in -Bin is encoded.
type Call func(ctx context.Context, procedure string, header http.Header) Answer

// Answer is what a client gets.
type Answer struct {
	Code    uint32 // as gRPC and Connect number them; 0 is success
	Message string
	Fields  http.Header // of header and trailer
	Details []any       // messages of google.rpc
}

// The codes of limiters, and of a handler that fails.
const (
	ok                uint32 = 0
	canceled          uint32 = 1
	unknown           uint32 = 2
	resourceExhausted uint32 = 8
	unavailable       uint32 = 14
)

// Test tests the adapter.
func Test(t *testing.T, a Adapter) {
	for _, procedure := range a.Procedures {
		denial(t, a.Serve, procedure)
		failClosed(t, a.Serve, procedure)
		handlerFails(t, a.Serve, procedure)
		stacked(t, a.Serve, procedure)
		deadline(t, a.Serve, procedure)
		if procedure != a.Procedures[0] {
			spend(t, a.Serve, procedure)
		}
	}

	never(t, a.Serve, a.Procedures[0])
	bans(t, a.Serve, a.Procedures[0])
	heldBack(t, a.Intercept)

	routes(t, a)
	keys(t, a.Serve, a.Procedures[0])
	headers(t, a.Serve, a.Procedures[0])
}

type serve = func(t testing.TB, h Handler, limits ...*middleware.Limiter) Call

type userKey struct{}

// Authenticate is a stand-in for an interceptor that checks who the client is.
func Authenticate(ctx context.Context) context.Context {
	return context.WithValue(ctx, userKey{}, "alice")
}

var secret = []byte("0123456789abcdef0123456789abcdef")

func hmacKey(*jwt.Token) (any, error) { return secret, nil }

// limiter makes a limiter on a store.
func limiter(t *testing.T, store gcra.Store, policies ...middleware.Policy) *middleware.Limiter {
	t.Helper()
	l, err := middleware.New(middleware.Config{Store: store}, policies...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// keys tests that the functions of package keyfunc work unchanged.
func keys(t *testing.T, serve serve, path string) {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"sub": "bob", "exp": 4102444800}).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}

	team := keyfunc.APIKey("X-Api-Key", func(_ context.Context, k string) (string, bool) { return "team", k == "k1" })

	for _, test := range []struct {
		name   string
		key    keyfunc.Func
		header http.Header
		want   string
	}{
		{"RemoteAddr", keyfunc.RemoteAddr, nil, "ip:127.0.0.1"},
		{"TrustedProxies", keyfunc.TrustedProxies("127.0.0.0/8"), http.Header{"X-Forwarded-For": {"192.0.2.1", "192.0.2.7"}}, "ip:192.0.2.7"},
		{"TrustedProxies, another peer", keyfunc.TrustedProxies("10.0.0.0/8"), http.Header{"Forwarded": {"for=192.0.2.7"}}, "ip:127.0.0.1"},
		{"APIKey", team, http.Header{"X-Api-Key": {"k1"}}, "key:team"},
		{"APIKey twice", team, http.Header{"X-Api-Key": {"k1", "k2"}}, "key:team"},
		{"JWTSubject", keyfunc.JWTSubject(hmacKey, []string{"HS256"}), http.Header{"Authorization": {"Bearer " + token}}, "sub:|bob"},
		{"Subject", keyfunc.Subject(func(ctx context.Context) string { s, _ := ctx.Value(userKey{}).(string); return s }), nil, "sub:alice"},
		{"Route", keyfunc.Route, nil, "route:" + path},
		{"method and path", func(r *http.Request) (string, error) { return r.Method + " " + r.URL.Path, nil }, nil, "POST " + path},
	} {
		var got []string
		observe := func(_ *http.Request, d *middleware.Decision) { got = append(got, d.Results[0].Subject) }
		call := serve(t, nil, middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Observe: observe},
			middleware.Policy{Name: "p", Key: test.key, Limit: gcra.PerHour(5)})))

		if a := call(t.Context(), path, test.header); a.Code != ok {
			t.Errorf("%s: got %+v", test.name, a)
		}
		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s: got keys %q; want %q", test.name, got, test.want)
		}
	}
}

// headers tests that nothing in the header, which clients write, makes a decision fail.
func headers(t *testing.T, serve serve, path string) {
	t.Helper()
	owner := func(_ context.Context, k string) (string, bool) { return k, true }

	var d *middleware.Decision
	cfg := middleware.Config{
		Store:   gcra.NewMemory(),
		Observe: func(_ *http.Request, seen *middleware.Decision) { d = seen },
		Logger:  slog.New(slog.DiscardHandler), // gets the proxy that TrustedHops misses
	}

	thousand := gcra.PerHour(1000)
	call := serve(t, nil, middleware.Must(middleware.New(cfg,
		middleware.Policy{Name: "address", Key: keyfunc.TrustedProxies("127.0.0.0/8"), Limit: thousand},
		middleware.Policy{Name: "hop", Key: keyfunc.TrustedHops(2), Limit: thousand},
		middleware.Policy{Name: "token", Key: keyfunc.JWTSubject(hmacKey, []string{"HS256"}), Limit: thousand},
		middleware.Policy{Name: "key", Key: keyfunc.APIKey("X-Key", owner), Limit: thousand},
		middleware.Policy{Name: "bin", Key: keyfunc.APIKey("X-Key-Bin", owner), Limit: thousand})))

	huge := strings.Repeat("a", 1<<17)
	for name, header := range map[string]http.Header{
		"binary":   {"X-Key-Bin": {"\x00\xff\n", ""}, "X-Forwarded-For-Bin": {"\x00"}, "Authorization-Bin": {huge}},
		"repeated": {"X-Key": slices.Repeat([]string{"k"}, 200), "X-Forwarded-For": slices.Repeat([]string{"192.0.2.1, ,"}, 200), "Authorization": {"Bearer a", "Bearer b"}}, // net/http takes 500 values
		"huge":     {"X-Key": {huge}, "X-Key-Bin": {huge}, "X-Forwarded-For": {huge}, "Authorization": {"Bearer " + huge}},
		"empty":    {"X-Key": {""}, "X-Forwarded-For": {""}, "Authorization": {""}, "X-Key-Bin": {""}},
		"odd": {"X_key": {"k"}, "X.key": {"k"}, "-": {"k"}, "Host": {"other.example"}, "X-Forwarded-For": {"[::1%25]:x, ,,"},
			"Ratelimit-Remaining": {"9"}, "Retry-After": {"0"}, "Grpc-Retry-Pushback-Ms": {"0"}},
	} {
		if a := call(t.Context(), path, header); a.Code != ok || d.Err != nil || !a.has("RateLimit-Limit: 1000") {
			t.Errorf("%s: got %+v, Decision.Err %v; want a decision without an error", name, a, d.Err)
		}
	}
}

// routes tests that policies go by the procedure and by its service.
func routes(t *testing.T, a Adapter) {
	t.Helper()
	var applied []string
	policy := func(name, route string) middleware.Policy {
		return middleware.Policy{Name: name, Key: keyfunc.Const("k"), Limit: gcra.PerHour(1000), Routes: []string{route}}
	}
	service := a.Procedures[0][:strings.LastIndex(a.Procedures[0], "/")]
	call := a.Serve(t, nil, middleware.Must(middleware.New(middleware.Config{
		Store: gcra.NewMemory(),
		Observe: func(_ *http.Request, d *middleware.Decision) {
			for _, p := range d.Results {
				applied = append(applied, p.Policy)
			}
		},
	}, policy("method", a.Procedures[0]), policy("service", service+"/*"), policy("other", "/other.Service/*"))))

	for i, procedure := range a.Procedures {
		want := []string{"method", "service"}
		if i > 0 {
			want = want[1:]
		}
		applied = nil
		if got := call(t.Context(), procedure, nil); got.Code != ok || !slices.Equal(applied, want) {
			t.Errorf("%s: got %+v, policies %q; want %q", procedure, got, applied, want)
		}
	}
}

// Panics tests that New and From of an adapter panic at a mistake, with what is wrong. path is
// a call's.
func Panics[I any](t *testing.T, path string, build func(middleware.Config, ...middleware.Policy) I, from func(*middleware.Limiter) I) {
	t.Helper()
	policy := middleware.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: []string{path[1:]}}

	for want, f := range map[string]func(){
		"Store is nil": func() { build(middleware.Config{}) },
		`Routes[0] is "` + path[1:] + `", which matches no call; want one such as "/package.Service/Method"`: func() {
			build(middleware.Config{Store: gcra.NewMemory()}, policy)
		},
		"the *middleware.Limiter is nil": func() { from(nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("got %s; want a panic that says %s", got, want)
				}
			}()
			f()
		}()
	}
}
