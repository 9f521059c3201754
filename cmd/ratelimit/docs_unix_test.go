//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The commands of the page and the examples of the help run, with a file of policies in the
// folder, which is a clone, and a Redis.
func TestDocs(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}

	lines := commands(t)
	if len(lines) < 25 {
		t.Errorf("got %d commands; want those of the page and of the help", len(lines))
	}

	log, err := filepath.Abs("replay/testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable() // of this test, which is the command too
	if err != nil {
		t.Fatal(err)
	}

	server(t)
	t.Chdir(t.TempDir())
	const policies = `policies:
  - {name: client, key: client, limit: 100/minute}
  - {name: login, key: [user, client], limit: 5/minute, routes: ["POST /login"], overrides: [{limit: none, subjects: ["sub:bob"]}]}
`

	err = errors.Join(os.WriteFile("policies.yaml", []byte(policies), 0o600), os.Symlink(log, "access.log"), os.Symlink(binary, "ratelimit"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("RATELIMIT_TEST_MAIN", "1")
	t.Setenv("RATELIMIT_POLICIES", "policies.yaml")

	git := exec.CommandContext(t.Context(), shell, "-c", "git init -qb main && git add policies.yaml && git -c user.name=a -c user.email=a@example.com commit -qm a")
	out, gitErr := git.CombinedOutput()

	for _, line := range lines {
		if gitErr != nil && strings.Contains(line, "git show") {
			t.Logf("not run: %s: %v %s", line, gitErr, out)
			continue
		}
		if err := inShell(t, shell, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// commands returns the commands of the page and of the help.
func commands(t *testing.T) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operators.md")
	if err != nil {
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
			examplesOf(below)
		}
	}
	examplesOf((&command{}).root())

	for _, line := range lines {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ratelimit ") {
			all = append(all, line)
		}
	}
	return all
}

// inShell runs a command of a page.
func inShell(t *testing.T, shell, line string) error {
	t.Helper()
	printed, err := exec.CommandContext(t.Context(), shell, "-c", "PATH=$PWD:$PATH; exec "+line).CombinedOutput()
	if err != nil && !strings.Contains(string(printed), "has no override") {
		return fmt.Errorf("%w\n%s", err, printed)
	}
	return nil
}
