package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestDenial(t *testing.T) {
	const body429 = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
		`"detail":"The request was denied because a rate limit is used up.","violated-policies":["a \"q\" \\","b"]}` + "\n"
	store, _ := newStore()
	once := gcra.PerHour(1)

	policies := []middleware.Policy{
		{Name: `a "q" \`, Key: key("k"), Limit: once}, {Name: "b", Key: key("k"), Limit: once},
		{Name: "fine", Key: key("k"), Limit: five}, {Name: "shadow", Key: key("k"), Limit: once, Shadow: true},
	}

	l := limiter(t, middleware.Config{Store: store}, policies...)
	l.Decide(get("/"))
	res, _ := allow(l, get("/"))
	body := new(strings.Builder)
	res.Write(body)
	if _, got, _ := strings.Cut(body.String(), "\r\n\r\n"); got != body429 {
		t.Errorf("body: got %s; want %s", got, body429)
	}

	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "3600"} {
		if got := res.Header.Get(name); got != want || res.StatusCode != 429 {
			t.Errorf("%s: got %d, %q; want 429, %q", name, res.StatusCode, got, want)
		}
	}

	// A Content-Length of another response goes. A Content-Encoding stays: the
	// middleware that set it compresses this response too.
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "5")
	w.Header().Set("Content-Encoding", "br")
	if _, ok := l.Allow(w, get("/")); ok || w.Header().Get("Content-Length") != "" || w.Header().Get("Content-Encoding") != "br" {
		t.Errorf("got header %v; want no Content-Length, and the Content-Encoding", w.Header())
	}

	// Deny runs when the fields are set.
	l = limiter(t, middleware.Config{Store: store, Deny: func(w http.ResponseWriter, _ *http.Request, d *middleware.Decision) {
		if w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit-Limit") == "" {
			t.Error("Deny is called before the fields are set")
		}
		http.Error(w, "slow down", d.Status())
	}}, policies...)

	if res, _ = allow(l, get("/")); res.StatusCode != 429 || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("Deny: got %d, %q; want its own answer", res.StatusCode, res.Header.Get("Content-Type"))
	}
}

// A Deny that has written gets no second response after its own: also if it has written to the
// writer inside. One that only set deadlines has written nothing.
func TestDenyThatWritesInside(t *testing.T) {
	for _, test := range []struct {
		name string
		deny func(w http.ResponseWriter)
		want string
	}{
		{"nothing", func(http.ResponseWriter) {}, "429 1"},
		{"deadlines", func(w http.ResponseWriter) {
			rc := http.NewResponseController(w)
			err := errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Now().Add(time.Hour)), rc.EnableFullDuplex())
			if err != nil {
				t.Errorf("got %v; want no error", err)
			}
		}, "429 1"},
		{"inside", func(w http.ResponseWriter) {
			w = w.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "later")
		}, "418 0"},
	} {
		log := new(diagtest.Log)
		cfg := middleware.Config{Store: gcra.NewMemory(), Logger: log.Logger(), Deny: func(w http.ResponseWriter, _ *http.Request, _ *middleware.Decision) { test.deny(w) }}
		l := limiter(t, cfg, middleware.Policy{Name: "all", Key: key("k"), Limit: gcra.PerHour(1)})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.Allow(w, r) }))
		defer s.Close()

		var got string
		for range 2 {
			res, err := http.Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			got = fmt.Sprint(res.StatusCode, " ", len(log.Lines()))
			if res.StatusCode == http.StatusTeapot && string(body) != "later" {
				t.Errorf("%s: got %q; want what Deny wrote", test.name, body)
			}
		}
		if got != test.want {
			t.Errorf("%s: got status and lines %s; want %s", test.name, got, test.want)
		}
	}
}
