// Package realmw runs key functions behind real authentication middleware, and
// recipes of the docs in the frameworks that they are for.
package realmw

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	ginjwt "github.com/appleboy/gin-jwt/v2"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/jwtauth/v5"
	"github.com/golang-jwt/jwt/v5"
	"github.com/golang-jwt/jwt/v5/request"
	echojwt "github.com/labstack/echo-jwt/v4"
	"github.com/labstack/echo/v4"

	viaecho "github.com/seed-e377111c/ratelimit/adapters/echo"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var credentialKey = []byte("a secret of 32 bytes or more ...")

func verifyWith(*jwt.Token) (any, error) { return credentialKey, nil }

// userFrom is the key of docs/keys.md.
func userFrom(auth *ginjwt.GinJWTMiddleware) func(*http.Request) (string, error) {
	return viagin.KeyFrom(func(c *gin.Context) (string, error) {
		id, _ := ginjwt.ExtractClaims(c)[auth.IdentityKey].(string)
		if id == "" {
			return "", fmt.Errorf("no text in claim %q: is gin-jwt in front, and does PayloadFunc set the claim?", auth.IdentityKey)
		}
		return id, nil
	})
}

// echoUser is the key of docs/keys.md: echo-jwt leaves the verified token in echo's context, under "user".
var echoUser = viaecho.KeyFrom(func(c echo.Context) (string, error) {
	token, ok := c.Get("user").(*jwt.Token)
	if !ok {
		return "", errors.New("no token: is echo-jwt in front?")
	}

	subject, err := token.Claims.GetSubject()
	if err == nil && subject == "" {
		err = errors.New("no subject: does the issuer set sub?")
	}
	return subject, err
})

// A seen is what became of one request.
type seen struct {
	served  string // the user that the application took it for
	counted string // the subject that the limiter counted it for
}

// applications are servers with an authentication and the key function that docs/keys.md has for it.
func applications(t *testing.T, last *seen) map[string]http.Handler {
	cfg := middleware.Config{Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler)}
	cfg.Observe = func(_ *http.Request, d *middleware.Decision) {
		for _, result := range d.Results {
			last.counted = result.Subject
		}
	}
	policy := func(key keyfunc.Func) middleware.Policy {
		return middleware.Policy{Name: "user", Key: key, SkipAnonymous: true, Limit: gcra.PerSecond(1_000_000)}
	}
	subject := policy(keyfunc.JWTSubject(verifyWith, []string{"HS256"}))

	// In front of each authentication that reads the first value of a header.
	plain := func(p middleware.Policy, userOf func(*http.Request) string) http.Handler {
		return vianethttp.New(cfg, p)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { last.served = userOf(r) }))
	}
	parsed := func(token *jwt.Token, err error) string {
		if err != nil {
			return ""
		}
		user, _ := token.Claims.GetSubject()
		return user
	}

	fromRequest := func(from request.Extractor) func(*http.Request) string {
		return func(r *http.Request) string { return parsed(request.ParseFromRequest(r, from, verifyWith)) }
	}
	byHand := func(split func(value string) []string) func(*http.Request) string {
		return func(r *http.Request) string {
			if parts := split(r.Header.Get("Authorization")); len(parts) > 1 && strings.EqualFold(parts[0], "Bearer") {
				return parsed(jwt.Parse(parts[1], verifyWith))
			}
			return ""
		}
	}

	ja := jwtauth.New("HS256", credentialKey, nil)
	owners := map[string]string{"key of alice": "alice", "key of bob": "bob"}

	// Behind authentications that also read other places, or every value.
	chiUser := keyfunc.Subject(func(ctx context.Context) string {
		token, _, err := jwtauth.FromContext(ctx)
		if err != nil || token == nil {
			return ""
		}
		return token.Subject()
	})

	verifier := jwtauth.Verifier(ja)(vianethttp.New(cfg, policy(chiUser))(jwtauth.Authenticator(ja)(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			token, _, _ := jwtauth.FromContext(r.Context())
			last.served = token.Subject()
		}))))

	e := echo.New()
	e.Use(echojwt.JWT(credentialKey), viaecho.New(cfg, policy(echoUser)))
	e.GET("/", func(c echo.Context) error {
		last.served = parsed(c.Get("user").(*jwt.Token), nil)
		return nil
	})

	gin.SetMode(gin.ReleaseMode)
	inGin := func(limitFirst bool) http.Handler {
		auth, err := ginjwt.New(&ginjwt.GinJWTMiddleware{Realm: "test", Key: credentialKey,
			Authenticator: func(*gin.Context) (any, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}

		router := gin.New()
		if limitFirst {
			router.Use(viagin.New(cfg, subject), auth.MiddlewareFunc())
		} else {
			router.Use(auth.MiddlewareFunc(), viagin.New(cfg, policy(userFrom(auth))))
		}
		router.GET("/", func(c *gin.Context) { last.served, _ = ginjwt.ExtractClaims(c)[auth.IdentityKey].(string) })
		return router
	}

	return map[string]http.Handler{
		"golang-jwt":        plain(subject, fromRequest(request.AuthorizationHeaderExtractor)),
		"golang-jwt Bearer": plain(subject, fromRequest(request.BearerExtractor{})),
		"strings.Fields":    plain(subject, byHand(strings.Fields)),
		"strings.Split":     plain(subject, byHand(func(value string) []string { return strings.Split(value, " ") })),
		"jwtauth's header": plain(subject, func(r *http.Request) string {
			token, err := jwtauth.VerifyRequest(ja, r, jwtauth.TokenFromHeader)
			if err != nil {
				return ""
			}
			return token.Subject()
		}),
		"gin-jwt, limiter first": inGin(true),
		"an API key": plain(policy(keyfunc.APIKey("X-API-Key", func(_ context.Context, apiKey string) (string, bool) {
			name, ok := owners[apiKey]
			return name, ok
		})), func(r *http.Request) string { return owners[r.Header.Get("X-API-Key")] }),

		"jwtauth":  verifier,
		"echo-jwt": e,
		"gin-jwt":  inGin(false),
	}
}

// tokenOf returns a token with the claims of all authentications.
func tokenOf(t *testing.T, user string, expires time.Time, key []byte) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": user, "identity": user, "exp": expires.Unix(),
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// respelled returns a token in other forms, which jwx reads too.
func respelled(rng *rand.Rand, token string) string {
	parts := strings.Split(token, ".")
	switch rng.IntN(3) {
	case 0:
		return fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2])
	case 1:
		return token + "="
	}
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	return parts[0] + "." + parts[1] + "." + base64.StdEncoding.EncodeToString(signature)
}

func oneOf(rng *rand.Rand, choices ...string) string { return choices[rng.IntN(len(choices))] }

// A request that is served as a user was counted for that user, whatever headers the client sends. No
// text that was not verified makes a key: no token of mallory verifies.
func TestCredentials(t *testing.T) {
	later := time.Now().Add(time.Hour)
	alice, bob := tokenOf(t, "alice", later, credentialKey), tokenOf(t, "bob", later, credentialKey)
	forged, expired := tokenOf(t, "mallory", later, []byte("another")), tokenOf(t, "mallory", time.Unix(1, 0), credentialKey)

	var last seen
	for name, server := range applications(t, &last) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		reads := func(token string) string {
			if strings.Contains(token, ".") && name == "jwtauth" && rng.IntN(3) == 0 {
				return respelled(rng, token)
			}
			return token
		}

		inForm := map[string]bool{} // the headers that were served
		for range 5000 {
			r := httptest.NewRequest("GET", "/", nil)
			for range rng.IntN(4) {
				token := reads(oneOf(rng, alice, alice, bob, forged, expired, forged[:20], strings.ToUpper(alice), "a.b.c", ""))
				r.Header["Authorization"] = append(r.Header["Authorization"],
					oneOf(rng, "Bearer", "Bearer", "bearer", "BEARER", "bEaReR", "Basic", "Bearer Bearer", "")+
						oneOf(rng, " ", " ", " ", "\t", "_", "  ", " \t ", "\u00a0", "\xff", "")+
						token+oneOf(rng, "", "", "", " ", "\t", "\u2003", " x", ",", "\x00"))
				r.Header["X-Api-Key"] = append(r.Header["X-Api-Key"], oneOf(rng, "key of alice", "key of bob", "key of mallory", ""))
			}
			if rng.IntN(4) == 0 {
				r.AddCookie(&http.Cookie{Name: "jwt", Value: oneOf(rng, alice, bob, forged, expired, "x")})
			}

			last = seen{}
			server.ServeHTTP(httptest.NewRecorder(), r)

			_, user, _ := strings.Cut(last.counted, ":")
			user = strings.TrimPrefix(user, "|")
			if last.served != "" && user != last.served || !slices.Contains([]string{"", "alice", "bob"}, user) {
				t.Fatalf("%s, seed %d, headers %q: served as %q and counted for %q", name, seed, r.Header, last.served, last.counted)
			}
			if last.served != "" {
				inForm[fmt.Sprint(r.Header)] = true
			}
		}

		if len(inForm) < 10 {
			t.Errorf("%s: only %d of the random headers were served as a user", name, len(inForm))
		}
	}
}
