package realmw

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	echojwt "github.com/labstack/echo-jwt/v4"
	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	"github.com/seed-e377111c/ratelimit/gcra"
)

// echoUser is the key of docs/keys.md: echo-jwt leaves the verified token in echo's context, under "user".
var echoUser = ratelimit.KeyFrom(func(c echo.Context) (string, error) {
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

func TestEchoJWT(t *testing.T) {
	secret := []byte("a secret that is long enough for HS256")
	e := echo.New()
	e.Use(
		echojwt.JWT(secret),
		ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "user", Key: echoUser, Limit: gcra.PerMinute(1)}),
	)

	e.GET("/hello", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })

	for i, subject := range []string{"alice", "alice", "bob"} {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			Subject: subject, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
		}).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}

		r, w := httptest.NewRequest("GET", "/hello", nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token)
		e.ServeHTTP(w, r)

		if want := []int{200, 429, 200}[i]; w.Code != want {
			t.Errorf("request %d, of %s: got %d; want %d", i, subject, w.Code, want)
		}
	}
}
