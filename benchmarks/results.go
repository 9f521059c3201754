package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// tablesFile has benchstat's tables of all figures.
const tablesFile = "results.txt"

// writeResults writes the targets, benchstat's tables and what was measured on.
func writeResults(file, table string, rounds int, server, quiet string) error {
	tables, err := exec.Command("go", "tool", "benchstat",
		"-table", ".name,/framework,/rtt,/rate,/keys,/cores,/callers", "-row", "/limiter,/servers,/checks",
		"-filter", ".name:Middleware OR -.unit:B/op (.name:(Redis OR Memory OR Denied) OR -.unit:allocs/op)", samplesFile).Output()
	if err != nil {
		return fmt.Errorf("benchstat: %w", err)
	}
	// The mean of different limiters says nothing, and not every name has every part.
	tables = regexp.MustCompile(`(?m)^(geomean .*|/\w+: )\n`).ReplaceAll(tables, nil)

	// The requirements in go.mod that are not indirect.
	module, err := os.ReadFile("go.mod")
	if err != nil {
		return err
	}
	list := []string{"list", "-m", "-f", "{{if .Version}}- {{.Path}} {{.Version}}{{end}}"}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllSubmatch(module, -1) {
		list = append(list, string(m[1]))
	}
	versions, err := exec.Command("go", list...).Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}

	samples, err := os.ReadFile(samplesFile)
	if err != nil {
		return err
	}
	cpu := regexp.MustCompile(`(?m)^cpu: .*`).Find(samples)

	var out bytes.Buffer
	fmt.Fprintf(&out, "# Results\n\nWritten by `make bench`, %d rounds; do not edit. [README.md](README.md) says what each name means.\n\n", rounds)
	fmt.Fprintf(&out, "## Against the targets\n\n%s\n", table)
	fmt.Fprintf(&out, "## Machine\n\n- %s, %d cores, shared by the clients and Redis\n- %s, %s\n- in the busiest round, %s\n\n", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, quiet)
	fmt.Fprintf(&out, "## Versions\n\n- %s\n- %s\n%s\n", runtime.Version(), server, versions)
	fmt.Fprintf(&out, "## All figures\n\n[%s](%s) has benchstat's tables.\n", tablesFile, tablesFile)

	if err := os.WriteFile(tablesFile, tables, 0o644); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// quoted are the rows of the targets that README.md shows, with what it calls them.
var quoted = [][2]string{
	{"Redis, 256 callers: checks/s, to redis_rate", "checks"},
	{"Redis, 256 callers: CPU of Redis for a check, to redis_rate", "CPU of Redis for a check"},
}

// quotedTable is the table of README.md.
var quotedTable = regexp.MustCompile(`(?s)(\n## Performance\n[^|]*\n)(?:\|[^\n]*\n)+`)

// quote writes our figures and redis_rate's into a page, each without what it varied by.
func quote(file, table string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !quotedTable.Match(page) {
		return fmt.Errorf("%s has no table after ## Performance", file)
	}

	rows := "| 256 callers, one Redis | ratelimit | redis_rate |\n|---|--:|--:|\n"
	for _, q := range quoted {
		_, row, found := strings.Cut(table, "| "+q[0]+" | ")
		if !found {
			return fmt.Errorf("no target is called %q", q[0])
		}
		ours, row, _ := strings.Cut(row, " ")
		_, row, _ = strings.Cut(row, "| ")
		theirs, _, _ := strings.Cut(row, " ")
		rows += fmt.Sprintf("| %s | %s | %s |\n", q[1], ours, theirs)
	}
	return os.WriteFile(file, quotedTable.ReplaceAll(page, []byte("${1}"+rows)), 0o644)
}
