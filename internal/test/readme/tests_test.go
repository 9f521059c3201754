package readme

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	testName  = regexp.MustCompile("`(Test\\w+)`")
	faultTest = regexp.MustCompile(`^TestFault[0-9]`)
)

// The tests that pages name exist, SECURITY.md gives the right number of fault tests, and
// each row of its tables of bounds names a test.
func TestNamedTests(t *testing.T) {
	exists, faults := make(map[string]bool), 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
			if faultTest.Match(m[1]) {
				faults++
			}
		}

		return err
	})
	if err != nil || !exists["TestNamedTests"] {
		t.Fatalf("no tests found: %v", err)
	}

	for _, page := range pages {
		for _, m := range testName.FindAllStringSubmatch(read(t, page), -1) {
			if !exists[m[1]] {
				t.Errorf("%s: there is no test %s", page, m[1])
			}
		}
	}

	security := read(t, "SECURITY.md")
	if want := fmt.Sprintf("has %d tests of faults", faults); !strings.Contains(security, want) {
		t.Errorf("SECURITY.md: want the text %q", want)
	}

	_, bounds, _ := strings.Cut(security, "## What is not promised")
	bounds, _, _ = strings.Cut(bounds, "\n## ")
	rows := 0
	for line := range strings.Lines(bounds) {
		if row := strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| test |\n"); row {
			if rows++; !testName.MatchString(line) {
				t.Errorf("SECURITY.md: no test in the row %s", line)
			}
		}
	}

	if rows < 20 {
		t.Errorf("SECURITY.md: got %d rows of bounds; want at least 20", rows)
	}
}
