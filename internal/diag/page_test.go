package diag_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// After two questions and an introduction the page has a section for each code, in the order of codes.go, with cause and
// fix, or a list of what to do.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}

	_, problems, _ := strings.Cut(string(page), "\n## Problems of the set-up\n")
	sections := regexp.MustCompile(`(?m)^## `).Split(problems, -1)[1:]
	var got, want []string
	for _, section := range sections {
		heading := regexp.MustCompile(`^.*`).FindString(section)
		got = append(got, heading)
		if !regexp.MustCompile(`(?s)\*\*Cause\.\*\* .+\n\n\*\*Fix\.\*\* |(?m)^- `).MatchString(section) {
			t.Errorf("section %s: want Cause and Fix, or a list", heading)
		}
	}

	for _, code := range regexp.MustCompile(` Code = "(.+?)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, code[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("sections: got %q; want %q", got, want)
	}
}
