package middleware_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
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

// A Deny that writes nothing gets its status, and one that writes to the writer inside gets no second body.
func TestDenyHasAStatus(t *testing.T) {
	for name, test := range map[string]struct {
		deny func(w http.ResponseWriter)
		want string
	}{
		"nothing":     {func(http.ResponseWriter) {}, "429 "},
		"early hints": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, "429 "},
		"status":      {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }, "418 "},
		"inside": {func(w http.ResponseWriter) {
			http.Error(w.(interface{ Unwrap() http.ResponseWriter }).Unwrap(), "later", http.StatusTeapot)
		}, "418 later\n"},
		"hijacked": {func(w http.ResponseWriter) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			conn.Close()
		}, "418 "},
	} {
		deny := func(w http.ResponseWriter, _ *http.Request, _ *middleware.Decision) { test.deny(w) }
		l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Deny: deny},
			middleware.Policy{Name: "all", Key: key("k"), Limit: gcra.PerHour(1)})
		l.Decide(get("/"))
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.Allow(w, r) }))
		var lines strings.Builder // net/http logs a second status
		s.Config.ErrorLog = log.New(&lines, "", 0)
		s.Start()

		res, err := http.Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		s.Close()
		if got := fmt.Sprint(res.StatusCode, " ", string(body)); got != test.want || lines.Len() > 0 && name != "inside" {
			t.Errorf("%s: got %q, and in the log %q; want %q", name, got, lines.String(), test.want)
		}
	}
}
