package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// greet says what runs and prints lines that work when pasted into a shell.
// What is not to be pasted is no line that begins with blanks.
func greet(out io.Writer, s settings, addr net.Addr, kept string) {
	tokens := "Tokens are signed with JWT_SECRET."
	if s.demo {
		tokens = "Tokens are signed with the demo key, which everybody knows; JWT_SECRET sets one of your own."
	}
	text := greeting
	if s.policies != "" {
		text = greetingWithFile
	}
	fmt.Fprintf(out, text, s.framework, baseURL(addr), kept, tokens, shellURL(addr), os.Getpid())
}

const greetingWithFile = `Quickstart with %[1]s listens on %[2]s
%[3]s
%[4]s

The limits are those of the file of policies: change one, save, and ask again.

  curl -i %[5]s/hello
  TOKEN=$(curl -sf -d '{"user":"alice"}' %[5]s/login | cut -d '"' -f 4)
  curl -i -H "Authorization: Bearer $TOKEN" %[5]s/me
  curl -i -H "Authorization: Bearer $TOKEN" %[5]s/report

Ctrl-C ends it; kill -HUP %[6]d reads the file at once.
`

const greeting = `Quickstart with %[1]s listens on %[2]s
%[3]s
%[4]s

10 a minute for an address: the 11th is refused, with a Retry-After.

  curl -i %[5]s/hello
  for i in $(seq 11); do curl -s -o /dev/null -w '%%{http_code}\n' %[5]s/hello; done
  curl -i %[5]s/hello

5 a second and 100 a day for a user, whom a token names; a report takes 3 units.

  TOKEN=$(curl -sf -d '{"user":"alice"}' %[5]s/login | cut -d '"' -f 4)
  curl -i -H "Authorization: Bearer $TOKEN" %[5]s/me
  curl -i -H "Authorization: Bearer $TOKEN" %[5]s/report
  for i in $(seq 9); do curl -s -o /dev/null -w '%%{http_code}\n' -H "Authorization: Bearer $TOKEN" %[5]s/me; done

Never limited.

  curl -i %[5]s/healthz

Ctrl-C ends it.
`

// baseURL is where this machine finds the server.
func baseURL(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "http://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// shellURL is baseURL for a command line: to zsh [::1] would be a pattern.
func shellURL(addr net.Addr) string {
	url := baseURL(addr)
	if strings.Contains(url, "[") {
		return "'" + url + "'"
	}
	return url
}
