package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var opens = regexp.MustCompile(`Inspector: (http://\S+/debug/ratelimit)\?token=(\S+)`)

// inspected is where the inspector of a quickstart is, and its token.
func (p *process) inspected() (token string) {
	p.t.Helper()
	found := opens.FindStringSubmatch(p.out.String())
	if found == nil || found[1] != p.url+inspectPath || len(found[2]) < 26 {
		p.t.Fatalf("it says %q; want the URL of the inspector", p.out.String())
	}
	return found[2]
}

// The URL that is printed opens the page, which shows what the limits do and
// resets them, whatever the framework.
func TestInspect(t *testing.T) {
	t.Parallel()
	hello := request("GET", "/hello", "")
	for i, p := range start3(t, "-inspect") {
		name, token := frameworkNames[i], p.inspected()
		answer := p.get(inspectPath + "?token=" + token)
		cookie, flags, _ := strings.Cut(header(answer, "Set-Cookie"), "; ")
		if status(answer) != http.StatusSeeOther || header(answer, "Location") != inspectPath || flags != "Path=/debug/ratelimit; HttpOnly; SameSite=Strict" {
			t.Errorf("%s: with the token: got %q; want a cookie, for the page alone, and the page", name, answer)
		}
		for _, query := range []string{"token=" + token + "&format=json&subject=ip%3Ax", "format=json&subject=ip:x&token=" + token} {
			if answer := p.get(inspectPath + "?" + query); header(answer, "Location") != inspectPath+"?format=json&subject=ip%3Ax" {
				t.Errorf("%s: ?%s: got %q; want a redirect that keeps the rest of the query", name, query, answer)
			}
		}
		cookie = "Cookie: " + cookie
		for range 12 {
			p.send(hello)
		}
		answer = p.get(inspectPath, cookie)
		if status(answer) != http.StatusOK || header(answer, "RateLimit-Limit") != "" {
			t.Errorf("%s: got %.600q; want the page, not limited", name, answer)
		}
		for _, want := range []string{"hello", "login", "burst", "daily", "10/minute", "GET /hello", "?subject=ip%3a127.0.0.1"} {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: the page does not say %q", name, want)
			}
		}
		if strings.Contains(answer, token) {
			t.Errorf("%s: the page has the token", name)
		}

		reset := func(headers ...string) string {
			headers = append(headers, cookie, "Content-Type: application/x-www-form-urlencoded")
			return p.send(request("POST", inspectPath+"?subject=ip:127.0.0.1", "policy=hello", headers...))
		}
		answer = p.send(request("POST", inspectPath+"?token="+token, "subject=ip:127.0.0.1&policy=hello", "Content-Type: application/x-www-form-urlencoded"))
		if status(answer) != http.StatusForbidden || !strings.Contains(answer, "send it as Authorization: Bearer") || header(answer, "Set-Cookie") != "" {
			t.Errorf("%s: a reset through the URL that was printed: got %q; want 403, and how to send the token", name, answer)
		}
		if answer := reset("Sec-Fetch-Site: cross-site", "Origin: https://evil.example"); status(answer) != http.StatusForbidden {
			t.Errorf("%s: a reset from another site: got %q; want 403", name, answer)
		}
		if answer := p.send(hello); status(answer) != http.StatusTooManyRequests {
			t.Errorf("%s: after that: got %q; want 429", name, answer)
		}
		if answer := reset("Sec-Fetch-Site: same-origin", "Origin: http://api.example.com"); status(answer) != http.StatusSeeOther {
			t.Errorf("%s: a reset: got %q; want 303", name, answer)
		}
		if answer := p.send(hello); header(answer, "RateLimit-Remaining") != "9" {
			t.Errorf("%s: after a reset: got %q; want 9 remaining", name, answer)
		}

		answer = p.get(inspectPath+"?format=json", "Authorization: Bearer "+token)
		if status(answer) != http.StatusOK || !strings.Contains(answer, `"name": "hello"`) {
			t.Errorf("%s: for a program: got %.600q; want JSON", name, answer)
		}
	}
}

// Nobody gets in without the token, whatever the spelling of the path, and the
// page cannot be used up.
func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	all := start3(t, "-inspect")
	wrong := strings.Repeat("A", 26)
	for _, step := range []struct {
		name, request string
		status        int
	}{
		{"nothing", request("GET", inspectPath, ""), 403},
		{"a wrong token", request("GET", inspectPath+"?token="+wrong, ""), 403},
		{"an empty token", request("GET", inspectPath+"?token=", ""), 403},
		{"a wrong bearer token", request("GET", inspectPath, "", "Authorization: Bearer "+wrong), 403},
		{"a token for the API", request("GET", inspectPath, "", as(t, "alice")), 403},
		{"a reset", request("POST", inspectPath, "subject=ip:127.0.0.1&policy=hello", "Content-Type: application/x-www-form-urlencoded"), 403},
		{"another method", request("DELETE", inspectPath, ""), 403},
		{"below", request("GET", inspectPath+"/x", ""), 404},
		{"a slash more", request("GET", inspectPath+"/", ""), 404},
		{"two slashes", request("GET", "/"+inspectPath, ""), 404},
		{"escaped", request("GET", "/debug%2fratelimit", ""), 404},
		{"in capitals", request("GET", "/DEBUG/ratelimit", ""), 404},
	} {
		answer := same(t, all, step.request)
		if status(answer) != step.status || strings.Contains(answer, "daily") || header(answer, "Set-Cookie") != "" {
			t.Errorf("%s: got %q; want %d and nothing of the limits", step.name, answer, step.status)
		}
	}
	for i, p := range all {
		bearer := "Authorization: Bearer " + p.inspected()
		for n := range 50 {
			if got := status(p.get(inspectPath, bearer)); got != http.StatusOK {
				t.Fatalf("%s: look %d: got %d; want 200", frameworkNames[i], n+1, got)
			}
		}
		if other := all[(i+1)%len(all)]; status(other.get(inspectPath, bearer)) != http.StatusForbidden {
			t.Errorf("%s: another server takes its token", frameworkNames[i])
		}
	}
}

// The page follows the file of policies, of which a limit for every request does
// not count those for the page.
func TestInspectPolicies(t *testing.T) {
	t.Parallel()
	path, text := copied(t)
	p := start(t, nil, "-inspect", "-policies", path)
	bearer := "Authorization: Bearer " + p.inspected()
	p.says("everybody 300/minute", 1)
	write(t, path, strings.Replace(text, "300/minute burst 50", "7/hour", 1))
	p.says("everybody 7/hour", 1)
	p.get(inspectPath, bearer)
	answer := p.get(inspectPath, bearer)
	if !strings.Contains(answer, "7/hour") || !strings.Contains(answer, "shadow: denies nothing") || !strings.Contains(answer, "<dt>Decisions</dt><dd>0</dd>") {
		t.Errorf("got %.3000q; want the changed file, and no decision counted", answer)
	}
}
