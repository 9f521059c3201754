package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }

// Users sign in, guesses are slowed down, and unknown accounts are counted as known ones are.
func TestSignIn(t *testing.T) {
	guard, err := signin.New(middleware.Config{Store: gcra.NewMemory()}, signin.JSON("username"), keyfunc.RemoteAddr)
	if err != nil {
		t.Fatal(err)
	}
	h := guard.Handler(newUsers().signIn)
	for _, c := range []struct {
		account, password string
		want              int
	}{
		{"bob", "builder", 200}, {"alice", "builder", 401}, {"nobody", "", 401}, {"", "", 400},
		{"nobody", "a", 401}, {"nobody", "b", 401}, {"nobody", "c", 401}, {"nobody", "d", 401}, {"nobody", "e", 429}, {"alice", "wonderland", 200},
	} {
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(fmt.Sprintf(`{"username": %q, "password": %q}`, c.account, c.password)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%q, %q: got %d, %s; want %d", c.account, c.password, w.Code, w.Body, c.want)
		}
	}
}
