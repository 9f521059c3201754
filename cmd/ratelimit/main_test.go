package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("RATELIMIT_TEST_MAIN") != "":
		main()
	case os.Getenv("RATELIMIT_TEST_SERVE") == "page":
		serve(pageServer(context.Background(), os.Getenv("REDIS_URL")))
	case os.Getenv("RATELIMIT_TEST_SERVE") != "":
		serve(api(context.Background(), os.Getenv("REDIS_URL"), os.Getenv("RATELIMIT_TEST_SERVE")))
	}
	parallel.AtMost(8) // most of the time they wait
	os.Exit(diagtest.Quiet(m).Run())
}

// ran runs the command, without a terminal.
func ran(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// want runs the command, and checks its exit code and parts of what it prints: of what
// goes to stderr if the code is not 0.
func want(t *testing.T, code int, args []string, parts ...string) string {
	t.Helper()
	got, stdout, stderr := ran(args...)
	printed := stdout + stderr
	if got != code || code == 0 && stderr != "" {
		t.Errorf("%q: got %d, %q and %q; want %d", args, got, stdout, stderr, code)
	}
	for _, part := range parts {
		if !strings.Contains(oneLine(printed), oneLine(part)) {
			t.Errorf("%q: got\n%s\nwant %s", args, printed, part)
		}
	}

	others := slices.Contains(args, "--json") || len(args) > 0 && slices.Contains([]string{"check", "completion", "replay"}, args[0]) && !slices.Contains(args, "--help")
	for line := range strings.Lines(printed) {
		if !others && utf8.RuneCountInString(line) > columns+1 && strings.ContainsAny(strings.TrimSpace(line), " ") {
			t.Errorf("%q: got a line of more than %d columns: %s", args, columns, line)
		}
	}
	return stdout
}

// oneLine is text without its line breaks and padding.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// file writes a file and returns its name.
func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// helpPolicies returns the file of policies that the help shows.
func helpPolicies(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(long) {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "policies:") {
			return text
		}
	}
	t.Error("the help shows no file of policies")
	return ""
}

// A wrong usage exits with 2 and says what would be right. Help is no error.
func TestUsage(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	for _, args := range [][]string{{}, {"-h"}, {"help"}} {
		want(t, 0, args, "  check ", "  peek ", "  reset ", "  top ", "  override ", "  ban ", "  replay ", "  completion ", "Only reset, override and ban change limits or buckets", "REDIS_URL")
	}

	want(t, 0, []string{"check", file(t, helpPolicies(t))}, "is right")
	want(t, 0, []string{"completion", "bash"}, "__start_ratelimit")
	if code, found, _ := ran("__complete", "override", ""); code != 0 || !strings.Contains(found, "\nset\t") || !strings.Contains(found, "\nunset\t") {
		t.Errorf("the completion of override: got %d, %s", code, found)
	}

	if _, found, _ := ran("__complete", "ban", "--"); !strings.Contains(found, "--redis\t") || strings.Contains(found, "--json") {
		t.Errorf("the completion of ban --: got %s; want the flags that it takes", found)
	}

	policies := file(t, "policies: [{name: a, key: client, limit: 10/minute}]")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"reply"}, `there is no command "reply"; did you mean replay?`},
		{[]string{"override", "imporrt"}, "did you mean import?"},
		{[]string{"x"}, `there is no command "x"`},
		{[]string{"check"}, "FILE is missing; want check FILE"},
		{[]string{"check", policies, "--speed"}, "unknown flag: --speed"},
		{[]string{"check", policies, "--redis", "redis://localhost"}, "unknown flag: --redis"},
		{[]string{"replay", "--policies", policies}, "no log is given"},
		{[]string{"replay", "--policies", policies, "--at-most", "100", "x.log"}, "--at-most is 100"},
		{[]string{"--redis", "redis://localhost", "check", policies}, "--redis has no effect on check"},
		{[]string{"peek", "(anonymous)", "--policies", policies}, "stands for all requests with an empty key"},
		{[]string{"peek", "%#9537c5fdf120482f7d58d25e9ed583f5", "--policies", policies}, "the hash of a long subject"},
		{[]string{"top", "redis://:hun/t e\"r@localhost"}, `arguments are ["redis://...@localhost"]; want top`},
		{[]string{"redis://:hunter2@localhost", "top"}, `there is no command "redis://...@localhost"`},
		{[]string{"replay", "--json", "--policies", policies, "x.log"}, "unknown flag: --json"},
	} {
		want(t, 2, tt.args, tt.want, "See ratelimit", "--help")
	}
}

// Each command has an example in its help, and shows the global flags that it takes, and no other.
func TestHelp(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		help := want(t, 0, append(slices.Clone(path), "--help"), "Examples:\n  ")

		for _, name := range globals {
			args := append(slices.Clone(path), strings.Fields(cmd.Use)[1:]...)
			_, _, stderr := ran(append(args, "--"+name+"=true")...)
			takes := !strings.Contains(stderr, "unknown flag")
			if shows := strings.Contains(help, "      --"+name+" "); shows != takes {
				t.Errorf("%s: the help shows --%s: %t; want %t", cmd.CommandPath(), name, shows, takes)
			}
		}

		for _, below := range cmd.Commands() {
			visit(below)
		}
	}

	for _, cmd := range (&command{}).root().Commands() {
		visit(cmd)
	}
}

// replay is a command like the others.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	want(t, 0, []string{"replay", "--policies", "replay/testdata/policies.yaml", "--out", dir, "replay/testdata/access.log"}, "policy client")
	if charts, err := filepath.Glob(filepath.Join(dir, "replay.*")); err != nil || len(charts) != 2 {
		t.Errorf("got charts %q; want two", charts)
	}
}

// The command knows the zones of calendars on every machine.
func TestHasTheTimeZones(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(deps)), "time/tzdata") {
		t.Error("time/tzdata is not in the program; want it, for a machine without the database")
	}
}

// A time may be in days and weeks.
func TestSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1h": time.Hour, "7d": 7 * day, "2w": 14 * day, "1d12h": 36 * time.Hour, "1w1d1ms": 8*day + time.Millisecond,
		"": 0, "d": 0, "7": 0, "1h2d": 0, "99999d": 0, "1.5d": 0,
	} {
		var got span
		if err := got.Set(text); time.Duration(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %v, %v; want %v", text, time.Duration(got), err, want)
		}
	}
}
