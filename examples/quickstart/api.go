package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer    = "quickstart"
	tokenLife = time.Hour
	maxLogin  = 1 << 10 // bytes of a login's body
	maxUser   = 64      // bytes of a user's name
)

// api is what the server does apart from limiting: the same handlers for every
// framework.
type api struct {
	key []byte // signs and verifies tokens
}

func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (a *api) hello(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"hello": "world"})
}

// login gives a token to whoever asks: there are no passwords to try here.
func (a *api) login(w http.ResponseWriter, r *http.Request) {
	user, err := readUser(r.Body)
	switch {
	case errors.Is(err, errTooLarge):
		w.Header().Set("Connection", "close") // rather than read the rest
		fail(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	now := time.Now()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer:    issuer,
		Subject:   user,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(tokenLife)),
	}).SignedString(a.key)
	if err != nil {
		fail(w, http.StatusInternalServerError, "no token could be made")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusOK, map[string]string{"token": token})
}

var (
	errTooLarge = fmt.Errorf("the body is above %d bytes", maxLogin)
	errNotLogin = errors.New(`want a body such as {"user":"alice"}`)
	errNoUser   = fmt.Errorf("want a user of 1 to %d bytes", maxUser)
)

func readUser(body io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(body, maxLogin+1))
	if err != nil {
		return "", errNotLogin
	}
	if len(b) > maxLogin {
		return "", errTooLarge
	}
	var login struct{ User string }
	if err := json.Unmarshal(b, &login); err != nil {
		return "", errNotLogin
	}
	if login.User == "" || len(login.User) > maxUser {
		return "", errNoUser
	}
	return login.User, nil
}

func (a *api) me(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, map[string]string{"user": user(r.Context())})
}

func (a *api) report(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, map[string]string{"user": user(r.Context()), "report": "took three times the work"})
}

// noRoute answers what no route is for: 405 if only the method is wrong.
func (a *api) noRoute(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz", "/hello", "/me", "/report":
		w.Header().Set("Allow", "GET, HEAD")
	case "/login":
		w.Header().Set("Allow", "POST")
	default:
		nothing(w)
		return
	}
	fail(w, http.StatusMethodNotAllowed, "this is not done with "+r.Method)
}

func nothing(w http.ResponseWriter) { fail(w, http.StatusNotFound, "there is nothing here") }

// oneSpelling lets paths through that are spelled as routes are. The three
// routers do not agree on //hello, /hello/ and /h%65llo, and here they are to
// answer alike.
func oneSpelling(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/") || r.URL.RawPath != "" || path.Clean(r.URL.Path) != r.URL.Path {
			nothing(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate verifies the bearer token and returns the request with its user.
// Without a good token it answers 401 and returns false: a wrong one gets no
// further than none.
func (a *api) authenticate(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	subject, err := a.subject(r)
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized, "want the header Authorization: Bearer, with a token of POST /login")
		return r, false
	}
	return r.WithContext(context.WithValue(r.Context(), userKey{}, subject)), true
}

func (a *api) subject(r *http.Request) (string, error) {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return "", errors.New("no token, or several")
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errors.New("not a bearer token")
	}
	parsed, err := jwt.ParseWithClaims(token, &jwt.RegisteredClaims{},
		func(*jwt.Token) (any, error) { return a.key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithIssuer(issuer),
		jwt.WithExpirationRequired(),
	)
	if err != nil {
		return "", err
	}
	subject, err := parsed.Claims.GetSubject()
	if err == nil && subject == "" {
		err = errors.New("a token of nobody")
	}
	return subject, err
}

type userKey struct{}

// user is who was authenticated, or "".
func user(ctx context.Context) string {
	subject, _ := ctx.Value(userKey{}).(string)
	return subject
}

func fail(w http.ResponseWriter, status int, why string) {
	reply(w, status, map[string]string{"error": why})
}

func reply(w http.ResponseWriter, status int, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only when the client has gone
}
