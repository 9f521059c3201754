package readme

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// documents are the pages at the root and in docs.
var documents = func() []string {
	all := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		panic(fmt.Sprintf("docs has no pages: %v", err))
	}
	for _, page := range pages {
		all = append(all, "docs/"+filepath.Base(page))
	}
	return all
}()

// block is a fenced block of a document.
type block struct {
	where    string // document:line
	language string
	lines    []string
}

func blocks(t *testing.T, document string) (all []block) {
	t.Helper()
	inside := false
	for i, line := range strings.Split(read(t, document), "\n") {
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			all = append(all, block{fmt.Sprintf("%s:%d", document, i+1), language, nil})
			inside = true
		case fence:
			inside = false
		case inside:
			b := &all[len(all)-1]
			b.lines = append(b.lines, strings.TrimSpace(line))
		}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// chunks are the parts of a block between empty lines: what stands between
// them in the source may be left out. A whole program is one chunk.
func (b block) chunks() [][]string {
	if b.language == "go" && strings.HasPrefix(b.lines[0], "package ") {
		return [][]string{b.lines}
	}
	var all [][]string
	fresh := true
	for _, line := range b.lines {
		if line == "" {
			fresh = true
			continue
		}
		if fresh {
			all = append(all, nil)
			fresh = false
		}
		all[len(all)-1] = append(all[len(all)-1], line)
	}
	return all
}

// occurs reports whether the chunks stand in lines, in their order.
func occurs(lines []string, chunks [][]string) bool {
	for _, chunk := range chunks {
		at := 0
		for ; at+len(chunk) <= len(lines) && !slices.Equal(lines[at:at+len(chunk)], chunk); at++ {
		}
		if at+len(chunk) > len(lines) {
			return false
		}
		lines = lines[at+len(chunk):]
	}
	return true
}

// sources are the lines of each Go file of the module, without indentation.
func sources(t *testing.T) (all [][]string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "benchmarks" || d.Name() == ".git" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		all = append(all, lines)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every Go block stands in a file that is compiled, and every HTTP block in the
// output of an example that is run.
func TestSnippets(t *testing.T) {
	code := sources(t)
	output := make([][]string, len(code))
	for i, lines := range code {
		for _, line := range lines {
			if text, ok := strings.CutPrefix(line, "//"); ok {
				output[i] = append(output[i], strings.TrimSpace(text))
			}
		}
	}
	for _, document := range documents {
		for _, b := range blocks(t, document) {
			where := code
			switch b.language {
			case "go":
			case "http":
				where = output
			default:
				continue
			}
			if !slices.ContainsFunc(where, func(lines []string) bool { return occurs(lines, b.chunks()) }) {
				t.Errorf("%s: no Go file has these lines; put them into internal/readme, where they are compiled and run:\n%s",
					b.where, strings.Join(b.lines, "\n"))
			}
		}
	}
}

var (
	goRun = regexp.MustCompile(`go (?:-C (\S+) )?(?:run|test)\b.*? (\./\S*[^./\s]|\.)(?:\s|$)`)
	makes = regexp.MustCompile(`^(?:FUZZTIME=\S+ )?make ([a-z -]+)`)
)

// Commands name folders and make targets that exist.
func TestCommands(t *testing.T) {
	targets := read(t, "Makefile")
	for _, document := range documents {
		for _, b := range blocks(t, document) {
			if b.language != "sh" {
				continue
			}
			for _, line := range b.lines {
				if m := goRun.FindStringSubmatch(line); m != nil {
					if _, err := os.Stat(filepath.Join(root, m[1], m[2])); err != nil {
						t.Errorf("%s: %s: %v", b.where, line, err)
					}
				}
				if m := makes.FindStringSubmatch(line); m != nil {
					for _, target := range strings.Fields(m[1]) {
						if !strings.Contains(targets, "\n"+target+":") {
							t.Errorf("%s: the Makefile has no target %q", b.where, target)
						}
					}
				}
			}
		}
	}
}
