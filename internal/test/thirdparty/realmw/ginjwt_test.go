// Package realmw runs key functions behind real authentication middleware, and
// recipes of the docs in the frameworks that they are for.
package realmw

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ginjwt "github.com/appleboy/gin-jwt/v2"
	"github.com/gin-gonic/gin"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
)

// userFrom is the key of the docs/keys.md.
func userFrom(auth *ginjwt.GinJWTMiddleware) func(*http.Request) (string, error) {
	user := ratelimit.KeyFrom(func(c *gin.Context) (string, error) {
		id, _ := ginjwt.ExtractClaims(c)[auth.IdentityKey].(string)
		if id == "" {
			return "", fmt.Errorf("no text in claim %q: is gin-jwt in front, and does PayloadFunc set the claim?", auth.IdentityKey)
		}
		return id, nil
	})
	return user
}

// server has gin-jwt with its defaults, and one request an hour for each user.
func server(t *testing.T, auth *ginjwt.GinJWTMiddleware, decided func(*ratelimit.Decision)) *httptest.Server {
	t.Helper()
	gin.SetMode(gin.ReleaseMode)
	auth.Key = []byte("a secret of 32 bytes or more ...")
	auth.Authenticator = func(c *gin.Context) (any, error) { return c.Query("as"), nil }
	auth, err := ginjwt.New(auth)
	if err != nil {
		t.Fatal(err)
	}

	router := gin.New()
	router.POST("/login", auth.LoginHandler)
	router.Use(auth.MiddlewareFunc(), ratelimit.New(ratelimit.Config{
		Store:   gcra.NewMemory(),
		Observe: func(_ *http.Request, d *ratelimit.Decision) { decided(d) },
	}, ratelimit.Policy{Name: "user", Key: userFrom(auth), Limit: gcra.PerHour(1)}))

	router.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	s := httptest.NewServer(router)
	t.Cleanup(s.Close)
	return s
}

// login is a token that gin-jwt has issued.
func login(t *testing.T, s *httptest.Server, as string) string {
	t.Helper()
	res, err := http.Post(s.URL+"/login?as="+as, "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body map[string]any
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	token, _ := body["token"].(string)
	if token == "" {
		t.Fatalf("login: got %v; want a token", body)
	}
	return token
}

func hello(t *testing.T, s *httptest.Server, token string) int {
	t.Helper()
	r, err := http.NewRequest("GET", s.URL+"/hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// Each user of gin-jwt has a bucket, with the identity key that it has by
// default and with another.
func TestGinJWT(t *testing.T) {
	for _, identity := range []string{"", "id"} {
		auth := &ginjwt.GinJWTMiddleware{Realm: "test", Timeout: time.Hour, IdentityKey: identity}
		auth.PayloadFunc = func(data any) ginjwt.MapClaims { return ginjwt.MapClaims{auth.IdentityKey: data} }

		var last *ratelimit.Decision
		s := server(t, auth, func(d *ratelimit.Decision) { last = d })
		alice, bob := login(t, s, "alice"), login(t, s, "bob")
		for i, request := range []struct {
			token, subject string
			want           int
		}{{alice, "own:alice", 200}, {alice, "own:alice", 429}, {bob, "own:bob", 200}, {bob, "own:bob", 429}} {
			if got := hello(t, s, request.token); got != request.want || last.Err != nil || last.Results[0].Subject != request.subject {
				t.Errorf("identity key %q, request %d of %s: got status %d, %+v; want %d", identity, i+1, request.subject, got, last.Results, request.want)
			}
		}

		last = new(ratelimit.Decision)
		if got := hello(t, s, "forged."+alice); got != http.StatusUnauthorized || len(last.Results) != 0 {
			t.Errorf("forged token: got status %d and %+v; want gin-jwt to reject it before the limiter", got, last.Results)
		}
	}
}

// Without the claim nobody can be told apart: that is an error and not one
// bucket for all, in silence.
func TestGinJWTWithoutTheClaim(t *testing.T) {
	var last *ratelimit.Decision
	s := server(t, &ginjwt.GinJWTMiddleware{Realm: "test", Timeout: time.Hour,
		PayloadFunc: func(data any) ginjwt.MapClaims { return ginjwt.MapClaims{"sub": data} },
	}, func(d *ratelimit.Decision) { last = d })
	hello(t, s, login(t, s, "alice"))
	if last.Err == nil || !strings.Contains(last.Err.Error(), `no text in claim "identity"`) {
		t.Errorf("got error %v; want one that names the claim", last.Err)
	}
}
