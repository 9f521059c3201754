package diag_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// After two questions and an introduction the page has a section for each code, in the order of codes.go, with symptom,
// cause and fix.
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
		if !regexp.MustCompile(`(?s)\*\*Symptom\.\*\* .+\n\n\*\*Cause\.\*\* .+\n\n\*\*Fix\.\*\* `).MatchString(section) {
			t.Errorf("section %s: want Symptom, Cause and Fix", heading)
		}
	}

	for _, code := range regexp.MustCompile(` Code = "(.+?)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, code[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("sections: got %q; want %q", got, want)
	}
}
