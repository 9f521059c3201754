package readme

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	sentence = regexp.MustCompile(`^.+?([.] |[.:]$)`)
)

var update = flag.Bool("update", false, "write llms.txt")

// llms.txt lists every page, in the form of llmstxt.org: title, link and first sentence. After a
// page has changed, write it: go test ./internal/test/readme -run TestLLMs -update
func TestLLMs(t *testing.T) {
	_, problems, _ := strings.Cut(read(t, "README.md"), "\n## Links\n")
	problems, _, _ = strings.Cut(problems, "\n## ")

	var docs, byProblem, optional strings.Builder
	for _, page := range pages[1:] {
		section := &docs
		switch {
		case strings.Contains(problems, "("+page+")"):
			section = &byProblem
		case !strings.HasPrefix(page, "docs/"):
			section = &optional
		}
		title, about := opening(t, page)
		section.WriteString("- [" + title + "](" + page + "): " + about + "\n")
	}

	title, about := opening(t, "README.md")
	want := "# " + title + "\n\n> " + about + " Start with [README.md](README.md).\n\n## By problem\n\n" + byProblem.String() +
		"\n## Documentation\n\n" + docs.String() + "\n## Optional\n\n" + optional.String()
	if *update {
		if err := os.WriteFile(filepath.Join(root, "llms.txt"), []byte(want), 0o644); err != nil { //nolint:gosec // for all
			t.Fatal(err)
		}
	}
	got := read(t, "llms.txt")
	if got != want {
		t.Errorf("llms.txt is not of these pages: write it with -update; want\n%s", want)
	}
	for _, broken := range brokenLinks("llms.txt", got) {
		t.Error(broken)
	}
}

// opening returns the title of a page and the first sentence below it, without links.
func opening(t *testing.T, page string) (title, first string) {
	t.Helper()
	title, rest, _ := strings.Cut(strings.TrimPrefix(read(t, page), "# "), "\n\n")
	paragraph, _, _ := strings.Cut(rest, "\n\n")
	text := link.ReplaceAllString(strings.ReplaceAll(paragraph, "\n", " "), "$1")
	first = strings.TrimRight(sentence.FindString(text), ".: ")
	if title == "" || first == "" || strings.HasPrefix(first, "- ") || strings.HasPrefix(first, "|") {
		t.Errorf("%s: got title %q and opening %q; want a sentence below the title", page, title, first)
	}
	return title, first + "."
}
