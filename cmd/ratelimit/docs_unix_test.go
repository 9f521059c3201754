//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The commands of the page and the examples of the help run, with a file of policies in the
// folder and a Redis.
func TestDocs(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	page, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	log, err := filepath.Abs("replay/testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	s := server(t)
	url := s.URL()
	t.Chdir(t.TempDir())
	const policies = `policies:
  - {name: client, key: client, limit: 100/minute}
  - {name: login, key: [user, client], limit: 5/minute, routes: ["POST /login"], overrides: [{limit: none, subjects: ["sub:bob"]}]}
`
	if err := os.WriteFile("policies.yaml", []byte(policies), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(log, "access.log"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("overrides.json", []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}

	var lines []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		lines = append(lines, strings.Split(block[1], "\n")...)
	}
	var examplesOf func(cmd *cobra.Command)
	examplesOf = func(cmd *cobra.Command) {
		lines = append(lines, strings.Split(cmd.Example, "\n")...)
		for _, below := range cmd.Commands() {
			if cmd.Name() != "completion" {
				examplesOf(below)
			}
		}
	}
	examplesOf((&command{}).root())

	n := 0
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "ratelimit ") || strings.Contains(line, "--every") || strings.Contains(line, "<(") {
			continue // goes on until Ctrl-C; needs a clone
		}
		n++
		line, _, _ = strings.Cut(line, " > ")
		cmd := exec.CommandContext(t.Context(), shell, "-c", `ratelimit() { RATELIMIT_TEST_MAIN=1 "$RATELIMIT_TEST_BINARY" "$@"; }; `+line)
		cmd.Env = append(os.Environ(), "RATELIMIT_TEST_BINARY="+binary(t), "REDIS_URL="+url)
		if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "has no override") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	if n < 20 {
		t.Errorf("got %d commands; want those of the page and of the help", n)
	}
}

// binary is the program of this test, which is the command too.
func binary(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
