// Package readme checks what README.md, docs and the other pages show: Go
// blocks compile, commands run, responses and outputs are the code's,
// links lead somewhere.
package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// pages are the Markdown files that this package checks.
var pages = func() []string {
	all := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		panic(fmt.Sprintf("docs has no pages: %v", err))
	}
	for _, page := range docs {
		all = append(all, "docs/"+filepath.Base(page))
	}
	return all
}()

// block is a fenced block of a page.
type block struct {
	page     string
	line     int    // of its first line of text
	heading  string // above it
	language string
	text     string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// blocks returns the blocks of a page in one of the languages, or all of them.
func blocks(t *testing.T, page string, languages ...string) (all []block) {
	t.Helper()
	inside, heading := false, ""
	for i, line := range strings.SplitAfter(read(t, page), "\n") {
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			all = append(all, block{page, i + 2, heading, language, ""})
			inside = true
		case fence:
			inside = false
		case inside:
			all[len(all)-1].text += line
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}

	if len(languages) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(b block) bool { return !slices.Contains(languages, b.language) })
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each block names a language for which there is a check; text is the one that
// has none of its own.
func TestLanguages(t *testing.T) {
	checked := []string{"go", "diff", "sh", "console", "http", "yaml", "json", "text"}
	for _, page := range pages {
		for _, b := range blocks(t, page) {
			if !slices.Contains(checked, b.language) {
				t.Errorf("%s: the block's language is %q; want one of %q", b, b.language, checked)
			}
			if b.language == "json" && !json.Valid([]byte(b.text)) {
				t.Errorf("%s: the block is not JSON:\n%s", b, b.text)
			}
		}
	}
}
