package inspect_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Browsers are allowed only what the page needs.
func TestSecurityHeaders(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
	w := s.send(httptest.NewRequest("GET", "/?subject=x", nil))
	_, style, _ := strings.Cut(w.Body.String(), "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
	forbidden := httptest.NewRequest("PUT", "/", nil)

	for _, w := range []*httptest.ResponseRecorder{w, s.send(forbidden), s.send(post("subject=x&policy=a")), s.send(post(""))} {
		for name, value := range map[string]string{
			"Content-Security-Policy": want, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
			"X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%d: %s: got %q; want %q", w.Code, name, got, value)
			}
		}
	}
}

var reference = regexp.MustCompile(`(?:href|src|action|srcset|data|poster)="([^"]*)"|url\(|@import|<script|\bon\w+=|style=`)

// The page refers only to itself, wherever it is mounted, and has no script and no style
// that its policy forbids.
func TestReferences(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "client", Key: who, Limit: five},
		middleware.Policy{Name: "trial", Key: who, Limit: five, Shadow: true, Routes: []string{"/hello"}})
	s.ask(9, "ip:192.0.2.7", "/hello")
	s.ask(7, hostile, "/hello")
	for _, query := range []string{"", "?subject=ip:192.0.2.7", "?subject=x&reset=client"} {
		page := s.html(query)
		found := reference.FindAllStringSubmatch(page, -1)
		if len(found) < 5 {
			t.Errorf("%s: got %q; want links", query, found)
		}
		for _, f := range found {
			if !strings.HasPrefix(f[1], "?") {
				t.Errorf("%s: got %q; want references to the page itself alone", query, f[0])
			}
		}
	}
}

func TestFormat(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
	const page, program = "text/html; charset=utf-8", "application/json"
	for _, test := range []struct {
		query, accept, want string
	}{
		{"", "", page},
		{"", "*/*", page},
		{"", "application/json", program},
		{"", "Application/JSON", program},
		{"", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", page},
		{"", "application/json, text/plain, */*", program},
		{"", "application/json, text/html", page},
		{"", ",;,", page},
		{"?format=json", "text/html", program},
		{"?format=JSON", "", program},
		{"?format=html", "application/json", page},
	} {
		r := httptest.NewRequest("GET", "/"+test.query, nil)
		if test.accept != "" {
			r.Header.Set("Accept", test.accept)
		}
		w := s.send(r)
		if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != test.want {
			t.Errorf("%q, Accept %q: got %d %s; want 200 %s", test.query, test.accept, w.Code, got, test.want)
		}
	}

	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Accept"] = []string{"text/plain", "application/json"}
	if got := s.send(r).Header().Get("Content-Type"); got != program {
		t.Errorf("two Accept lines: got %s; want %s", got, program)
	}
}
