package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// writeResults writes the targets, benchstat's tables and what was measured on.
func writeResults(file, table string, rounds int, program, server, quiet string) error {
	tables, err := exec.Command("go", "tool", "benchstat",
		"-table", ".name,/framework,/rate,/keys,/cores,/callers", "-row", "/limiter,/servers,/checks",
		"-filter", ".name:(Redis OR Memory OR Middleware OR Denied) OR -.unit:(B/op OR allocs/op)", samplesFile).Output()
	if err != nil {
		return fmt.Errorf("benchstat: %w", err)
	}
	// The mean of different limiters means nothing.
	tables = regexp.MustCompile(`(?m)^geomean .*\n`).ReplaceAll(tables, nil)

	module, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	build, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}

	var out bytes.Buffer
	fmt.Fprintf(&out, "# Results\n\nWritten by `make bench`, %d rounds; do not edit. [README.md](README.md) says what each name means.\n\n", rounds)
	fmt.Fprintf(&out, "## Against the targets\n\n%s\n", table)
	fmt.Fprintf(&out, "## Machine\n\n- %d cores, shared by the clients and Redis\n- %s, %s\n- in the busiest round, %s\n\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, quiet)
	fmt.Fprintf(&out, "## Versions\n\n- %s\n- %s\n", build.GoVersion, server)
	for _, dep := range build.Deps {
		if direct := "\t" + dep.Path + " " + dep.Version + "\n"; strings.Contains(string(module), direct) {
			fmt.Fprintf(&out, "- %s %s\n", dep.Path, dep.Version)
		}
	}
	fmt.Fprintf(&out, "\n## All figures\n\n```text\n%s```\n", tables)
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// quoted are the rows that README.md shows.
var quoted = regexp.MustCompile(`^\| (row|---|Redis, 1 caller:|Redis, 256 callers: checks/s, to redis_rate \||Redis, 256 callers: CPU|nethttp)`)

// quotedTable is the table of README.md.
var quotedTable = regexp.MustCompile(`(?s)(\n## Performance\n[^|]*\n)((?:\|[^\n]*\n)+)`)

// quote writes the quoted rows into a page.
func quote(file, table string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rows := ""
	for line := range strings.Lines(table) {
		if quoted.MatchString(line) {
			rows += line
		}
	}
	if !quotedTable.Match(page) {
		return fmt.Errorf("%s has no table after ## Performance", file)
	}
	return os.WriteFile(file, quotedTable.ReplaceAllFunc(page, func(old []byte) []byte {
		return append(bytes.Clone(quotedTable.FindSubmatch(old)[1]), rows...)
	}), 0o644)
}
