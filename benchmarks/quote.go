package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// quoted are the rows that README.md quotes. It has a fixed number of lines.
var quoted = []string{
	"Redis, 1 caller: time of a check, to a script of TIME, GET and SET",
	"Redis, 256 callers: checks a second, to redis_rate",
	"Redis, 256 callers: CPU of Redis for a check, to redis_rate",
	"net/http middleware: time added, to the fastest peer with headers",
}

// The table of README.md follows this line.
const quoteAfter = "## Performance"

const tableHeader = "| row | ours | theirs | ratio | spread | target | |\n|---|--:|--:|--:|--:|--:|---|\n"

// quote writes the quoted rows into a page.
func quote(file string, rows []row) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, _, after, err := cutTable(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	table := tableHeader
	for _, r := range rows {
		if slices.Contains(quoted, r.name) {
			table += r.markdown() + "\n"
		}
	}
	return os.WriteFile(file, []byte(before+table+after), 0o644)
}

// cutTable finds the table of quoted rows.
func cutTable(page string) (before, table, after string, err error) {
	section := strings.Index(page, quoteAfter+"\n")
	start := strings.Index(page[max(section, 0):], "\n| ")
	if section < 0 || start < 0 {
		return "", "", "", fmt.Errorf("no table after %q", quoteAfter)
	}
	start += section + 1
	end := start
	for line := range strings.Lines(page[start:]) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		end += len(line)
	}
	return page[:start], page[start:end], page[end:], nil
}
