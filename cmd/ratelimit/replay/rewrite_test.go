package replay

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file that --write writes has the suggested limits, and denies as the report says; all
// else is as it was.
func TestWrite(t *testing.T) {
	for _, top := range []string{"policies:", "limiters:\n  api:"} {
		testWrite(t, top)
	}
}

func testWrite(t *testing.T, top string) {
	policies := `# limits of the API
` + top + `
  - name: client # of all
    key: client
    limit: 10/minute   # a guess
    overrides: [{limit: 10/minute, subjects: ["ip:192.0.2.9"]}]
  - {name: plan, key: client, plans: {free: "5/minute", pro: 7/minute}}
  - {name: unused, key: user, limit: 3/minute, routes: ["POST /none"]}
`

	names := write(t, policies, strings.Repeat(lineAt(1, "x"), 40))
	to := filepath.Join(t.TempDir(), "new.yaml")
	var out strings.Builder
	args := []string{"--policies", names[0], "--plan", "pro", "--write", to, names[1]}
	if err := run(t.Context(), args, nil, &out, io.Discard); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("limit: 10/minute   #", "limit: 10/minute burst 40   #", "pro: 7/minute", "pro: 7/minute burst 40").Replace(policies)
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}

	if !strings.Contains(out.String(), "to deny none      10/minute burst 40") {
		t.Errorf("got\n%s\nwant what was written", &out)
	}
	if err := run(t.Context(), args, nil, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "want a new file") {
		t.Errorf("again: got %v; want that the file exists", err)
	}

	out.Reset()
	if err := run(t.Context(), []string{"--policies", to, "--plan", "pro", names[1]}, nil, &out, io.Discard); err != nil || !strings.Contains(out.String(), "\n0 of the requests would have been denied") {
		t.Errorf("with the new file: got %v and\n%s", err, &out)
	}
}

// AWS' documentation has these lines of an Application Load Balancer, with other addresses.
func TestParseALB(t *testing.T) {
	const rest = ` "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_123456`
	for line, want := range map[string]string{
		`https 2026-11-20T13:55:36.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/hello?x=1 HTTP/1.1"` + rest:    "192.0.2.7 - GET www.example.com:443 https://www.example.com:443/hello?x=1",
		`h2 2026-11-20T13:55:36.186641Z app/my-loadbalancer/50dc6c495c0c9188 2001:db8::1:48160 10.0.0.66:9000 0.000 0.002 0.000 200 200 5 257 "POST https://10.0.2.105:773/ HTTP/2.0"` + rest:             "2001:db8::1 - POST 10.0.2.105:773 https://10.0.2.105:773/",
		`ws 2026-11-20T13:55:36.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.0.2.7:40914 10.0.1.192:8010 0.001 0.003 0.000 101 101 218 587 "GET http://10.0.0.30:80/ HTTP/1.1" "-" - - arn:x "-" "-"`: "192.0.2.7 - GET 10.0.0.30:80 http://10.0.0.30:80/",
	} {
		e, err := newParser().parse([]byte(line))
		if err != nil || described(&e) != want {
			t.Errorf("got %q, %v; want %q", described(&e), err, want)
		}
	}

	for line, want := range map[string]string{
		`http 2026-11-20T13:55:36Z app/x 192.0.2.7:1 - -1 -1 -1 460 - 0 0 "- http://x:80- -" "-"`: `the path is`,
		`http 2026-11-20T13:55:36Z app/x`: "ends too early",
	} {
		if _, err := newParser().parse([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %s", line, err, want)
		}
	}
}
