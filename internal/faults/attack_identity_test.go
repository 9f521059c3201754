package faults

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault64AnonymousRequestsAreLimited(t *testing.T) {
	o := fault(t, "a key function that returns nothing")
	nobody := func(*http.Request) (string, error) { return "", nil }
	eachFramework(t, func(t *testing.T, f framework) {
		for _, key := range []keyfunc.Func{nobody, byClient, keyfunc.First(nobody, byClient), keyfunc.Join(nobody, nobody)} {
			s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{{Name: "all", Key: key, Limit: gcra.PerDay(2)}}})
			expect(t, "statuses", s.statuses(t, "GET /ok", 4), []int{200, 200, 429, 429})
			expect(t, "decisions with an error", s.failed.Load(), 0)
		}
	})
}

var secret = []byte("a secret that is long enough for HS256")

// token is an Authorization field.
func token(t *testing.T, method jwt.SigningMethod, key any, subject, issuer string, lives time.Duration) string {
	t.Helper()
	s, err := jwt.NewWithClaims(method, jwt.RegisteredClaims{
		Subject: subject, Issuer: issuer, ExpiresAt: jwt.NewNumericDate(time.Now().Add(lives))}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return "Authorization: Bearer " + s
}

func TestFault78UnverifiedTokenIsAnonymous(t *testing.T) {
	o := fault(t, "forged, alg=none, expired, wrong issuer")
	const burst = 3
	subject := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"}, jwt.WithIssuer("us"))
	hs, hour := jwt.SigningMethodHS256, time.Hour
	eachFramework(t, func(t *testing.T, f framework) {
		s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{
			{Name: "all", Key: keyfunc.First(subject, keyfunc.RemoteAddr), Limit: gcra.PerDay(burst)}}})
		good := token(t, hs, secret, "victim", "us", hour)
		unsigned, _, _ := strings.Cut(good, ".")
		payload := strings.Split(good, ".")[1]
		tampered := strings.Split(token(t, hs, secret, "attacker", "us", hour), ".")
		attacks := []string{
			token(t, hs, []byte("another secret, just as long as it"), "victim", "us", hour),
			token(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "victim", "us", hour),
			token(t, hs, secret, "victim", "us", -hour),
			token(t, hs, secret, "victim", "them", hour),
			token(t, jwt.SigningMethodHS512, secret, "victim", "us", hour),
			unsigned + "." + payload + ".",
			tampered[0] + "." + payload + "." + tampered[2],
			good + "x",
			"Authorization: Bearer a.b.c",
		}
		passed := 0
		for _, attack := range attacks {
			if s.do(t, "GET /ok", attack).StatusCode == http.StatusOK {
				passed++
			}
			expect(t, "counted as", s.lastDecision().Results[0].Subject, "ip:127.0.0.1")
		}
		o.over.Add(int64(max(passed-burst, 0)))
		expect(t, "passed by forgeries", passed, burst)
		a := s.do(t, "GET /ok", good)
		expect(t, "the victim's first request", []any{a.StatusCode, a.Header.Get("RateLimit-Remaining")}, []any{200, "2"})
		expect(t, "decisions with an error", s.failed.Load(), 0)
	})
}

func TestFault79GuessingAPIKeysGainsNothing(t *testing.T) {
	o := fault(t, "random keys from one address")
	const addressBurst, keyBurst = 10, 5
	server := redistest.Start(t)
	store := patientStore(t, server)
	known := map[[32]byte]string{sha256.Sum256([]byte("the key of acme")): "acme"}
	var lookups atomic.Int64
	owner := func(_ context.Context, apiKey string) (string, bool) {
		lookups.Add(1)
		name, ok := known[sha256.Sum256([]byte(apiKey))]
		return name, ok
	}
	// The limit by address is a limiter of its own in front, so that what it
	// refuses is not looked up.
	front := middleware.Must(middleware.New(middleware.Config{Store: store},
		middleware.Policy{Name: "address", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(addressBurst)}))
	s := openSite(t, o, setup{
		Config:   middleware.Config{Store: store},
		policies: []middleware.Policy{{Name: "key", Key: keyfunc.APIKey("X-API-Key", owner), Limit: gcra.PerDay(keyBurst)}},
		wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r, ok := front.Allow(w, r); ok {
					next.ServeHTTP(w, r)
				}
			})
		},
	})
	n, passed := sized(300, 10_000), 0
	for range n {
		if s.do(t, "GET /ok", "X-API-Key: "+rand.Text()).StatusCode == http.StatusOK {
			passed++
		}
	}
	// Beside "address" there is one bucket: that of anonymous requests.
	o.over.Add(int64(max(passed-keyBurst, 0)))
	expect(t, "passed by guesses", passed, keyBurst)
	expect(t, "guesses looked up", lookups.Load(), addressBurst)
	keys, err := server.Client().Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "keys in Redis", len(keys), 2)

	// The key itself stands nowhere, and its beginning is worth nothing.
	honest := from(t, "127.0.0.2")
	expect(t, "acme", s.doFrom(t, honest, "GET /ok", "X-API-Key: the key of acme").StatusCode, 200)
	expect(t, "who was counted", s.lastDecision().Results[0].Subject, "key:acme")
	s.doFrom(t, honest, "GET /ok", "X-API-Key: the key of acm")
	expect(t, "a prefix of it", s.lastDecision().Results[0].Subject, "")
	if keys, err = server.Client().Keys(t.Context(), "*the*key*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("keys that hold the API key: got %q, %v; want none", keys, err)
	}
	if dump := fmt.Sprint(s.lastDecision()); strings.Contains(dump, "the key of") {
		t.Errorf("the Decision holds the API key: %s", dump)
	}
}
