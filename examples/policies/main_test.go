package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/process"
)

func TestMain(m *testing.M) { process.Main(m, main) }

var opens = regexp.MustCompile(`Inspector: http://\S+(/debug/ratelimit)\?token=(\S{26,})`)

// A change of the file takes effect, and a broken file none. The printed token opens the page of the
// policies, and nothing else does.
func TestServer(t *testing.T) {
	text, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(text string) { // as editors do
		t.Helper()
		if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
	}

	write(string(text))
	p := process.Start(t, "-policies", path)
	if answer := p.Get("/hello"); process.Header(answer, "RateLimit-Remaining") != "9" {
		t.Errorf("hello: got %q; want 9 remaining", answer)
	}
	write(strings.Replace(string(text), "10/minute", "10/minit", 1))
	p.Says("Policies stay as they were:\n" + path + `:12:12: limit is "10/minit"`)
	write(strings.Replace(string(text), "10/minute", "7/minute", 1))
	p.Says(": hello 7/minute,")
	if answer := p.Get("/hello"); process.Header(answer, "RateLimit-Limit") != "7" {
		t.Errorf("hello: got %q; want the new limit", answer)
	}

	found := opens.FindStringSubmatch(p.Out.String())
	if found == nil {
		t.Fatalf("it says %q; want the URL of the inspector", p.Out.String())
	}
	page, token := found[1], found[2]
	answer := p.Get(page + "?token=" + token)
	cookie, flags, _ := strings.Cut(process.Header(answer, "Set-Cookie"), "; ")
	const forPage = "Path=/debug/ratelimit; HttpOnly; SameSite=Strict"
	if process.Status(answer) != 303 || process.Header(answer, "Location") != page || flags != forPage {
		t.Errorf("with the token: got %q; want a redirect to the page and a cookie for it alone", answer)
	}

	wrong := strings.Repeat("A", 26)
	for _, step := range []struct {
		name, request string
		status        int
	}{
		{"the cookie", process.Request("GET", page, "", "Cookie: "+cookie), 200},
		{"the token of a program", process.Request("GET", page, "", "Authorization: Bearer "+token), 200},
		{"nothing", process.Request("GET", page, ""), 403},
		{"a wrong token", process.Request("GET", page+"?token="+wrong, ""), 403},
		{"an empty token", process.Request("GET", page+"?token=", ""), 403},
		{"a wrong token of a program", process.Request("GET", page, "", "Authorization: Bearer "+wrong), 403},
		{"a reset with the token in the URL", process.Request("POST", page+"?token="+token, "subject=ip:127.0.0.1&policy=hello"), 403},
		{"a path below", process.Request("GET", page+"/x", ""), 404},
	} {
		answer := p.Send(step.request)
		shows := strings.Contains(answer, "7/minute")
		if process.Status(answer) != step.status || shows != (step.status == 200) || strings.Contains(answer, token) {
			t.Errorf("%s: got %.600q; want %d", step.name, answer, step.status)
		}
	}
}
