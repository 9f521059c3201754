package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const readme = "../README.md"

// README.md quotes rows of RESULTS.md as they are.
func TestReadmeQuotesResults(t *testing.T) {
	results, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _, err := cutTable(string(page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table) {
		if !strings.Contains(string(results), line) {
			t.Errorf("%s has the line\n%swhich %s does not have", readme, line, resultsFile)
		}
	}
}

func TestQuote(t *testing.T) {
	page := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(page, []byte("| other |\n\n"+quoteAfter+"\n\ntext\n\n| old |\n|---|\n| row |\n\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := []row{{name: quoted[0], ours: "1 us", ok: true}, {name: "not quoted"}}
	if err := quote(page, rows); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := "| other |\n\n" + quoteAfter + "\n\ntext\n\n" + tableHeader + rows[0].markdown() + "\n\nmore\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := quote(resultsFile, rows); err == nil || !strings.Contains(err.Error(), quoteAfter) {
		t.Errorf("a page without the section: got %v; want an error about %q", err, quoteAfter)
	}
}

// The page keeps its number of lines: there are as many rows to quote as it has.
func TestQuotedRows(t *testing.T) {
	n := 0
	for _, target := range targets {
		if slices.Contains(quoted, target.name) {
			n++
		}
	}
	if n != len(quoted) {
		t.Errorf("%d of the quoted rows exist; want all %d, the lines of the table in %s", n, len(quoted), readme)
	}
}
