package ratelimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echov5"
	"github.com/seed-e377111c/ratelimit/gcra"
)

func TestKeyFrom(t *testing.T) {
	failure := errors.New("no session")
	for _, test := range []struct {
		key     string
		err     error
		subject string
		wantErr error
	}{
		{"alice", nil, "own:alice", nil},
		{"", nil, "", nil}, // an anonymous request stays anonymous
		{"", failure, "", failure},
	} {
		var d ratelimit.Decision
		router := echo.New()
		router.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, seen ratelimit.Decision) { d = seen }},
			ratelimit.Policy{Name: "all", Limit: gcra.PerMinute(1), Key: ratelimit.KeyFrom(func(*echo.Context) (string, error) { return test.key, test.err })}))
		router.GET("/", hello)
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if got := d.Results[0].Subject; got != test.subject || !errors.Is(d.Err, test.wantErr) {
			t.Errorf("key %q, %v: got subject %q, error %v; want %q, %v", test.key, test.err, got, d.Err, test.subject, test.wantErr)
		}
	}
	elsewhere := ratelimit.KeyFrom(func(*echo.Context) (string, error) { return "x", nil })
	if _, err := elsewhere(httptest.NewRequest("GET", "/", nil)); err == nil || !strings.Contains(err.Error(), "echo v5 context") {
		t.Errorf("outside echo: got %v; want an error that says so", err)
	}
}

func TestNewPanics(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "Store is nil") {
			t.Errorf("got %v; want a panic that names the mistake", err)
		}
	}()
	ratelimit.New(ratelimit.Config{})
}
