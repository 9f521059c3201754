package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The key that signs the tokens is public, so that servers that share a Redis
// accept each other's. It protects nothing: POST /login asks for no password.
var tokenKey = []byte("public key of the quickstart, a demo")

func healthz(w http.ResponseWriter, _ *http.Request) { reply(w, "status", "ok") }

func hello(w http.ResponseWriter, _ *http.Request) { reply(w, "hello", "world") }

func me(w http.ResponseWriter, r *http.Request) { reply(w, "user", userOf(r.Context())) }

func report(w http.ResponseWriter, r *http.Request) { reply(w, "report", "of "+userOf(r.Context())) }

func login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
	user := r.PostFormValue("user")
	if user == "" {
		http.Error(w, "want a form such as user=alice", http.StatusBadRequest)
		return
	}

	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject:   user,
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).SignedString(tokenKey)
	if err != nil {
		http.Error(w, "no token could be made", http.StatusInternalServerError)
		return
	}

	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte(token))
}

// authenticate verifies the bearer token and returns the request with its user.
// Without a valid token it answers 401 and returns false.
func authenticate(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	var claims jwt.RegisteredClaims
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return tokenKey, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err != nil || claims.Subject == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "want Authorization: Bearer and a token from POST /login", http.StatusUnauthorized)
		return r, false
	}
	return r.WithContext(context.WithValue(r.Context(), userKey{}, claims.Subject)), true
}

type userKey struct{}

// userOf returns the authenticated user, or "".
func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

func reply(w http.ResponseWriter, name, value string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{name: value}) // fails only if the client is gone
}
