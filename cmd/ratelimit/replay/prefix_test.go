package replay

import (
	"bytes"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const (
	clfRequest = `127.0.0.1 - - [21/Nov/2026:22:49:02 +0000] "GET /hello?x=1 HTTP/1.1" 200 2 "-" "curl/7.88.1"`
	clfUser    = `127.0.0.1 - Anne Sales [21/Nov/2026:22:49:02 +0000] "GET /hello HTTP/1.1" 200 2 "-" "curl/7.88.1"`
	clfHost    = `client.example - - [21/Nov/2026:22:49:02 +0000] "GET /hello HTTP/1.1" 200 2 "-" "curl/7.88.1"`
	clfVhost   = `www.example.com:443 ` + clfRequest
	clfSocket  = `unix: - - [21/Nov/2026:22:49:02 +0000] "GET /unix HTTP/1.1" 200 2 "-" "curl/7.88.1"`
	clfIPv6    = `2001:db8::1 - alice [21/Nov/2026:22:49:02 +0000] "GET /hello HTTP/1.1" 200 2 "-" "curl/7.88.1"`
	clfList    = `203.0.113.9, 2001:db8::1 - - [21/Nov/2026:22:49:02 +0000] "GET /hello HTTP/1.1" 200 2 "-" "curl/7.88.1"`
	jsonLines  = `{"time":"2026-11-21T22:49:02Z","client":"127.0.0.1","method":"GET","path":"/hello"}`
)

// A prefix is not taken for the client, and the command in the message removes it. Without
// these commands the message alone is tested.
func TestPrefixes(t *testing.T) {
	for _, c := range []struct{ prefix, want string }{
		{"web-1  | ", "the line has a prefix of docker compose"},
		{"api-gateway-1      | ", "the line has a prefix of docker compose"},
		{"web_1 | ", "the line has a prefix of docker compose"},
		{"[pod/web-7d4b9c/nginx] ", "the line has a prefix of kubectl logs --prefix"},
		{"2026-11-21T22:49:02.123456789Z stdout F ", "the line has a prefix of the container runtime (CRI)"},
		{"2026-11-21T23:49:02.123456789+01:00 stderr F ", "the line has a prefix of the container runtime (CRI)"},
		{"2026-11-21T22:49:02.123456789Z ", "the line has a prefix of docker logs -t"},
		{"Nov 21 22:49:02 web1 nginx: ", "the line has a prefix of syslog"},
		{"Nov  1 22:49:02 web1 haproxy[16599]: ", "the line has a prefix of syslog"},
		{"<190>Nov 21 22:49:02 web1 nginx: ", "the line has a prefix of syslog"},
		{"<134>Nov 21 22:49:02 haproxy[16599]: ", "the line has a prefix of syslog"},
		{"2026-11-21T22:49:02.123456+00:00 web1 nginx: ", "the line has a prefix of rsyslog"},
		{"2026-11-21T22:49:02.123456+00:00 192.0.2.1 nginx[7]: ", "the line has a prefix of rsyslog"},
		{"<134>1 2026-11-21T22:49:02.123456+00:00 web1 haproxy 16599 - - ", "the line has a prefix of syslog (RFC 5424)"},
	} {
		for _, line := range []string{clfRequest, clfUser, clfHost, clfVhost, clfSocket, clfIPv6, clfList, jsonLines} {
			testPrefix(t, c.prefix, line, c.want)
		}
	}

	for _, prefix := range []string{"web nginx: ", "10.0.0.5 nginx: ", "from web1 at noon: "} {
		for _, line := range []string{clfRequest, clfVhost, clfIPv6, clfList} {
			testPrefix(t, prefix, line, "the line has a prefix before the client")
		}
	}
}

func testPrefix(t *testing.T, prefix, line, want string) {
	t.Helper()
	e, err := newParser().parse([]byte(prefix + line))
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%s: got client %q and user %q, %v; want an error that says %q", prefix+line, e.client, e.user, err, want)
		return
	}

	_, command, _ := strings.Cut(err.Error(), "remove it")
	command = regexp.MustCompile(`(?:sed|cut) .*$`).FindString(command)
	if command == "" {
		t.Errorf("%s: got %v; want a command that removes the prefix", prefix+line, err)
		return
	}

	for _, program := range []string{"sh", strings.Fields(command)[0]} {
		if _, err := exec.LookPath(program); err != nil {
			return
		}
	}

	shell := exec.Command("sh", "-c", command)
	shell.Stdin = strings.NewReader(prefix + line + "\n")
	out, err := shell.CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || !strings.HasSuffix(line, got) || got == "" {
		t.Errorf("%s: %s makes of it %s, %v; want %s", prefix+line, command, got, err, line)
		return
	}

	p := newParser()
	p.fields.hops = 2
	e, err = p.parse([]byte(strings.TrimSpace(string(out))))
	if err != nil || line == clfList && e.client != "203.0.113.9" {
		t.Errorf("%s: got client %q, %v", out, e.client, err)
	}
}

// A line without a prefix is read, whatever its first word and its user.
func TestNoPrefixes(t *testing.T) {
	const at, get = `[21/Nov/2026:22:49:02 +0000]`, `"GET / HTTP/1.1" 200 2`
	for before, want := range map[string]string{
		// nginx: combined, a unix socket, log formats with the virtual host
		"127.0.0.1 - -":                     "127.0.0.1 - GET /",
		"127.0.0.1 - Anne Sales":            "127.0.0.1 Anne Sales GET /",
		"127.0.0.1 - x 10.0.0.1 - -":        "127.0.0.1 x 10.0.0.1 - - GET /",
		"2001:db8::1 - x 10.0.0.1 - -":      "2001:db8::1 x 10.0.0.1 - - GET /",
		"unix: - -":                         "unix: - GET /",
		"unix: - Anne Sales":                "unix: Anne Sales GET /",
		"127.0.0.1:18431 127.0.0.1 - -":     "127.0.0.1 - GET 127.0.0.1:18431 /",
		"localhost: unix: - -":              "unix: - GET localhost: /",
		"[2001:db8::1]:443 192.0.2.7 - -":   "192.0.2.7 - GET [2001:db8::1]:443 /",
		"[2001:db8::1] 2001:db8::7 - alice": "2001:db8::7 alice GET [2001:db8::1] /",
		"_ 192.0.2.7 - -":                   "192.0.2.7 - GET _ /",
		"- 192.0.2.7 - -":                   "192.0.2.7 - GET - /",
		"www.example.com 192.0.2.7 - a b":   "192.0.2.7 a b GET www.example.com /",

		// Apache: hostnames, vhost_combined, identd
		"client.example - -":                  "client.example - GET /",
		"client.example - a b [c]":            "client.example a b [c] GET /",
		"client.example ident bob":            "client.example bob GET /",
		"www.example.com:443 192.0.2.7 - -":   "192.0.2.7 - GET www.example.com:443 /",
		"www.example.com:443 192.0.2.7 - a b": "192.0.2.7 a b GET www.example.com:443 /",
		"web-1 - -":                           "web-1 - GET /",
		"2026 - -":                            "2026 - GET /",
		"Nov - -":                             "Nov - GET /",
		"- - -":                               "- - GET /",

		// lighttpd: the virtual host second
		"127.0.0.1 www.example.com -":          "127.0.0.1 - GET /",
		"127.0.0.1 www.example.com Anne Sales": "127.0.0.1 Anne Sales GET /",
		"client.example www.example.com alice": "client.example alice GET /",

		// echo's, gin's with the formatter of -h, and others with a port
		"192.0.2.7:4711 - -":                  "192.0.2.7:4711 - GET /",
		"192.0.2.7:4711 - a b":                "192.0.2.7:4711 a b GET /",
		"[2001:db8::7]:4711 - x 10.0.0.1 - -": "[2001:db8::7]:4711 x 10.0.0.1 - - GET /",
	} {
		line := before + " " + at + " " + get
		e, err := newParser().parse([]byte(line))
		if err != nil {
			t.Errorf("%s: got %v; want an entry", line, err)
		} else if got := described(&e); got != want {
			t.Errorf("%s: got %q; want %q", line, got, want)
		}
	}

	// HAProxy with option httplog clf, and gorilla/handlers, which -h names for chi
	for _, line := range []string{
		`127.0.0.1 - - [21/Nov/2026:22:49:02 +0000] "GET /hello?x=1 HTTP/1.1" 200 124 "" "" 34616 819 "b" "n" "s1" 0 0 0 0 0 ---- 1 1 0 0 0 0 0 "" "" `,
		`127.0.0.1 - - [21/Nov/2026:22:49:06 +0000] "GET /hello?x=1 HTTP/1.1" 200 6 "" "Go-http-client/1.1"`,
	} {
		e, err := newParser().parse([]byte(line))
		if err != nil || described(&e) != "127.0.0.1 - GET /hello?x=1" {
			t.Errorf("%s: got %+v, %v; want an entry", line, e, err)
		}
	}
}

// Logs in other formats, or with a prefix before each client, are rejected with what to use.
func TestForeignFormats(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`web-1  | 192.0.2.7 - - [21/Nov/2026:22:49:02 +0000] "GET / HTTP/1.1" 200 2`, "docker compose logs --no-log-prefix"},
		{`127.0.0.1:33854 [21/Nov/2026:22:49:02.804] a n/s1 0/0/0/0/0 200 124 - - ---- 1/1/0/0/0 0/0 "GET /hello?x=1 HTTP/1.1"`, "want option httplog clf"},
		{`Nov 21 22:49:02 web1 haproxy[16599]: 127.0.0.1:33854 [21/Nov/2026:22:49:02.804] a n/s1 0/0/0/0/0 200 124 - - ---- 1/1/0/0/0 0/0 "GET /hello?x=1 HTTP/1.1"`, "want option httplog clf"},
		{`2026/11/21 22:49:06 "GET http://127.0.0.1:33229/hello?x=%22 HTTP/1.1" from 127.0.0.1:33084 - 200 6B in 94.341µs`, "chi's Logger, whose times have no zone; -h shows a format for chi"},
		{`2026/11/21 22:49:06 [web1/g4GexDKyQE-000001] "GET http://127.0.0.1:33229/hello HTTP/1.1" from 127.0.0.1:33084 - 200 6B in 94.341µs`, "chi's Logger"},
		{"2026/11/21 22:49:06 \x1b[36m\"\x1b[0m\x1b[35;1mGET \x1b[0m\x1b[36mhttp://127.0.0.1:33229/hello HTTP/1.1\" \x1b[0mfrom 127.0.0.1:33084 - \x1b[32;1m200\x1b[0m", "chi's Logger"},
		{`{"log":"127.0.0.1 - - [21/Nov/2026:22:49:02 +0000] \"GET / HTTP/1.1\" 200 2\n","stream":"stdout","time":"2026-11-21T22:49:02.123456789Z"}`, "want docker logs, or jq -j .log"},
		{`{"log":"{\"time\":\"2026-11-21T22:49:02Z\"}\n","stream":"stderr","attrs":{"tag":"web"},"time":"2026-11-21T22:49:02.123456789Z"}`, "want docker logs, or jq -j .log"},
		// Envoy, CloudFront, IIS, uvicorn, morgan
		{`[2026-11-21T22:49:02.123Z] "GET /hello HTTP/1.1" 200 - 0 5 1 0 "-" "curl/7.88.1" "5b1c" "api.example" "10.0.0.2:8080"`, generic},
		{"#Version: 1.0", generic},
		{"2026-11-21\t22:49:02\tLAX1\t2390282\t192.0.2.7\tGET\td111.cloudfront.net\t/index.html\t200", generic},
		{`2026-11-21 22:49:02 10.0.0.1 GET /hello - 80 - 192.0.2.7 curl/7.88.1 - 200 0 0 15`, generic},
		{`INFO:     127.0.0.1:51230 - "GET /hello HTTP/1.1" 200 OK`, generic},
		{`::1 - - [Sat, 21 Nov 2026 22:49:02 GMT] "GET /hello HTTP/1.1" 200 5 "-" "curl/7.88.1"`, generic},
		{`GET /hello 200 1.234 ms - 5`, generic},
		{`Nov 21 22:49:02 web1 kernel: eth0: link is up`, generic},
	} {
		files := write(t, "policies: [{name: a, key: client, limit: 10/minute}]", strings.Repeat(c.line+"\n", 30))
		var out bytes.Buffer
		err := run(t.Context(), []string{"--policies", files[0], files[1]}, nil, &out, io.Discard)
		if err == nil || out.Len() > 0 || !strings.Contains(err.Error(), "no request in the log; 30 (100.00 %)") || !strings.Contains(err.Error(), files[1]+":1: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\n%s\nwant an error that says %q", c.line, err, &out, c.want)
		}
	}
}

const generic = "no [20/Nov/2026:13:55:36 +0000] where it should be; want Common or Combined log format, or a JSON object; see -h"
