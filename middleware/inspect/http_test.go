package inspect_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http/httptest"
	"net/url"
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
		query, accept string
		status        int
		want          string
	}{
		{"", "", 200, page},
		{"", "*/*", 200, page},
		{"", "application/json", 200, program},
		{"", "Application/JSON", 200, program},
		{"", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 200, page},
		{"", "application/json, text/plain, */*", 200, program},
		{"", "application/json, text/html", 200, page},
		{"", ",;,", 200, page},
		{"?format=json", "text/html", 200, program},
		{"?format=html", "application/json", 200, page},
		{"?format=xml", "", 400, "text/plain; charset=utf-8"},
	} {
		r := httptest.NewRequest("GET", "/"+test.query, nil)
		if test.accept != "" {
			r.Header.Set("Accept", test.accept)
		}
		w := s.send(r)
		if got := w.Header().Get("Content-Type"); w.Code != test.status || got != test.want {
			t.Errorf("%q, Accept %q: got %d %s; want %d %s", test.query, test.accept, w.Code, got, test.status, test.want)
		}
	}

	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Accept"] = []string{"text/plain", "application/json"}
	if got := s.send(r).Header().Get("Content-Type"); got != program {
		t.Errorf("two Accept lines: got %s; want %s", got, program)
	}
}

// The JSON is readable in a terminal: a line for each field and for each series of a chart.
func TestJSONLines(t *testing.T) {
	const subject = "[\n1,\n2]" // is not a row
	s := newScene(t, middleware.Policy{Name: "a", Key: who, Limit: five})
	s.ask(7, subject, "/")
	body := s.send(httptest.NewRequest("GET", "/?format=json&subject="+url.QueryEscape(subject), nil)).Body.String()
	row := `"denied": [` + strings.Repeat("0,", 59) + "2],"
	for _, want := range []string{"\n  \"policies\": [\n", "\n      \"name\": \"a\",\n", "\n        " + row + "\n", "\n    \"subject\": \"[\\n1,\\n2]\",\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("got\n%s\nwant the line %q", body, want)
		}
	}
}
