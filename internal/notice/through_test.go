package notice_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/golang-jwt/jwt/v5"

	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// The report of a key function is in the limiter's log, once.
func TestThroughALimiter(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	token := func(claims jwt.RegisteredClaims) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text
	}

	good := token(jwt.RegisteredClaims{Subject: "alice", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))})
	for _, tt := range []struct {
		name          string
		key           keyfunc.Func
		authorization string
		requests      int
		want          []diag.Code
	}{
		{"a token without exp", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}),
			token(jwt.RegisteredClaims{Subject: "alice"}), 1, []diag.Code{diag.JWTRejected}},
		{"a good token", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}), good, 2, nil},
		{"a secret that is not set", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return []byte(""), nil }, []string{"HS256"}),
			good, 1, []diag.Code{diag.JWTRejected}},
		{"another secret, a hundred times", keyfunc.First(keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return []byte("another secret of 32 bytes or more"), nil }, []string{"HS256"}), keyfunc.RemoteAddr),
			good, 100, []diag.Code{diag.JWTRejected}},
		{"basic authentication, a hundred times", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}),
			"Basic YWxpY2U6", 100, []diag.Code{diag.AnonymousOnly}},
		{"a Keyfunc that fails", keyfunc.JWTSubject(func(*jwt.Token) (any, error) { panic("no keys") }, []string{"HS256"}),
			good, 99, nil},
		{"a route that is not known", keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route), "", 100, []diag.Code{diag.RouteUnknown}},
	} {
		log := new(diagtest.Log)
		router := chi.NewRouter()
		router.Use(vianethttp.New(vianethttp.Config{Store: gcra.NewMemory(), Logger: log.Logger()}, vianethttp.Policy{Name: "all", Key: tt.key, Limit: gcra.PerSecond(1000)}))
		router.Get("/users/{id}", func(http.ResponseWriter, *http.Request) {})
		for range tt.requests {
			r := httptest.NewRequest("GET", "/users/7", nil)
			r.Header.Set("Authorization", tt.authorization)
			router.ServeHTTP(httptest.NewRecorder(), r)
		}

		var got []diag.Code
		for _, line := range log.Lines() {
			got = append(got, line.Code())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got lines %q; want %q", tt.name, got, tt.want)
		}
	}
}

// Behind chi's RealIP each client chooses its address, which is logged once.
func TestBehindRealIP(t *testing.T) {
	log := new(diagtest.Log)
	router := chi.NewRouter()
	router.Use(chimiddleware.RealIP, vianethttp.New(vianethttp.Config{Store: gcra.NewMemory(), Logger: log.Logger()},
		vianethttp.Policy{Name: "all", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)}))
	router.Get("/", func(http.ResponseWriter, *http.Request) {})

	for _, address := range []string{"", "203.0.113.9", "203.0.113.10"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Forwarded-For", address)
		router.ServeHTTP(httptest.NewRecorder(), r)
	}

	if lines := log.Lines(); len(lines) != 1 || lines[0].Code() != diag.AddrOverwritten || lines[0].Attrs["address"] != "203.0.113.9" {
		t.Errorf("got lines %q; want one with code %s and 203.0.113.9", lines, diag.AddrOverwritten)
	}
}
