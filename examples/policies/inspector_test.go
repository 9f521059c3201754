package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/examples/internal/process"
)

var opens = regexp.MustCompile(`Inspector: (http://\S+/debug/ratelimit)\?token=(\S+)`)

// tokenOf returns the inspector's token that the example has printed.
func tokenOf(t *testing.T, p *process.Process) string {
	t.Helper()
	found := opens.FindStringSubmatch(p.Out.String())
	if found == nil || found[1] != p.URL+inspectorPath || len(found[2]) < 26 {
		t.Fatalf("it says %q; want the URL of the inspector", p.Out.String())
	}
	return found[2]
}

// The printed URL opens the page, which shows what the limits do and resets
// them.
func TestInspector(t *testing.T) {
	t.Parallel()
	p, _, _ := start(t)
	token := tokenOf(t, p)
	answer := p.Get(inspectorPath + "?token=" + token)
	cookie, flags, _ := strings.Cut(process.Header(answer, "Set-Cookie"), "; ")
	if process.Status(answer) != 303 || process.Header(answer, "Location") != inspectorPath || flags != "Path=/debug/ratelimit; HttpOnly; SameSite=Strict" {
		t.Errorf("with the token: got %q; want a redirect to the page and a cookie for it alone", answer)
	}

	for _, query := range []string{"token=" + token + "&format=html&subject=ip%3Ax", "format=html&subject=ip:x&token=" + token} {
		if answer := p.Get(inspectorPath + "?" + query); process.Header(answer, "Location") != inspectorPath+"?format=html&subject=ip%3Ax" {
			t.Errorf("?%s: got %q; want a redirect that keeps the rest of the query", query, answer)
		}
	}

	// A program that follows no redirects gets JSON, and the cookie too.
	answer = p.Get(inspectorPath + "?token=" + token + "&format=json")
	if process.Status(answer) != 200 || !strings.Contains(answer, `"name": "hello"`) || process.Header(answer, "Set-Cookie") != cookie+"; "+flags || process.Header(answer, "Cache-Control") != "no-store" {
		t.Errorf("with the token and format=json: got %.600q; want JSON and the cookie", answer)
	}
	if answer := p.Get(inspectorPath + "?format=json&token=" + strings.Repeat("A", 26)); process.Status(answer) != 403 {
		t.Errorf("with another token: got %.600q; want 403", answer)
	}

	cookie = "Cookie: " + cookie
	for range 12 {
		p.Get("/hello")
	}
	answer = p.Get(inspectorPath, cookie)
	if process.Status(answer) != 200 || process.Header(answer, "RateLimit-Limit") != "" {
		t.Errorf("got %.600q; want the page, not limited", answer)
	}

	for _, want := range []string{"hello", "login", "burst", "daily", "10/minute", "GET /hello", "?subject=ip%3a127.0.0.1"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the page does not say %q", want)
		}
	}

	if strings.Contains(answer, token) {
		t.Error("the page has the token")
	}

	reset := func(headers ...string) string {
		return p.Post(inspectorPath+"?subject=ip:127.0.0.1", "policy=hello", append(headers, cookie)...)
	}
	if answer := reset("Sec-Fetch-Site: cross-site", "Origin: https://evil.example"); process.Status(answer) != 403 {
		t.Errorf("a reset from another site: got %q; want 403", answer)
	}
	if answer := p.Get("/hello"); process.Status(answer) != 429 {
		t.Errorf("after that: got %q; want 429", answer)
	}
	if answer := reset("Sec-Fetch-Site: same-origin", "Origin: http://api.example.com"); process.Status(answer) != 303 {
		t.Errorf("a reset: got %q; want 303", answer)
	}
	if answer := p.Get("/hello"); process.Header(answer, "RateLimit-Remaining") != "9" {
		t.Errorf("after a reset: got %q; want 9 remaining", answer)
	}

	bearer := "Authorization: Bearer " + token
	answer = p.Get(inspectorPath+"?format=json", bearer)
	if process.Status(answer) != 200 || !strings.Contains(answer, `"name": "hello"`) {
		t.Errorf("for a program: got %.600q; want JSON", answer)
	}

	for n := range 50 {
		if got := process.Status(p.Get(inspectorPath, bearer)); got != 200 {
			t.Fatalf("look %d: got %d; want 200", n+1, got)
		}
	}

	if other, _, _ := start(t); process.Status(other.Get(inspectorPath, bearer)) != 403 {
		t.Error("another server accepts its token")
	}
}

// Without the token nobody gets in, whatever the spelling of the path.
func TestInspectorDenies(t *testing.T) {
	t.Parallel()
	p, _, _ := start(t)
	wrong := strings.Repeat("A", 26)
	for _, step := range []struct {
		name, request string
		status        int
	}{
		{"nothing", process.Request("GET", inspectorPath, ""), 403},
		{"a wrong token", process.Request("GET", inspectorPath+"?token="+wrong, ""), 403},
		{"an empty token", process.Request("GET", inspectorPath+"?token=", ""), 403},
		{"a wrong bearer token", process.Request("GET", inspectorPath, "", "Authorization: Bearer "+wrong), 403},
		{"an empty bearer token", process.Request("GET", inspectorPath, "", "Authorization: Bearer "), 403},
		{"an API key", process.Request("GET", inspectorPath, "", alice), 403},
		{"a reset", process.Request("POST", inspectorPath, "subject=ip:127.0.0.1&policy=hello"), 403},
		{"a reset with the token in the URL", process.Request("POST", inspectorPath+"?token="+tokenOf(t, p), "subject=ip:127.0.0.1&policy=hello"), 403},
		{"another method", process.Request("DELETE", inspectorPath, ""), 403},
		{"below", process.Request("GET", inspectorPath+"/x", ""), 404},
		{"a slash more", process.Request("GET", inspectorPath+"/", ""), 404},
		{"two slashes", process.Request("GET", "/"+inspectorPath, ""), 307},
		{"escaped", process.Request("GET", "/debug%2fratelimit", ""), 404},
		{"in capitals", process.Request("GET", "/DEBUG/ratelimit", ""), 404},
	} {
		answer := p.Send(step.request)
		if process.Status(answer) != step.status || strings.Contains(answer, "daily") || process.Header(answer, "Set-Cookie") != "" {
			t.Errorf("%s: got %q; want %d and nothing of the limits", step.name, answer, step.status)
		}
	}
}

// The page follows the policy file. A limit on every request does not count
// requests to the page.
func TestInspectorFollowsFile(t *testing.T) {
	t.Parallel()
	p, path, text := start(t)
	bearer := "Authorization: Bearer " + tokenOf(t, p)
	p.Says("everybody 300/minute")
	write(t, path, strings.Replace(text, "300/minute burst 50", "7/hour", 1))
	p.Says("everybody 7/hour")
	p.Get(inspectorPath, bearer)
	answer := p.Get(inspectorPath, bearer)
	if !strings.Contains(answer, "7/hour") || !strings.Contains(answer, "shadow: ") || !strings.Contains(answer, "<dt>Decisions</dt><dd>0</dd>") {
		t.Errorf("got %.3000q; want the changed file, and no decision counted", answer)
	}
}
