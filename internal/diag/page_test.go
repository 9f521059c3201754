package diag_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// The page has a section for each code, in the order of Codes, with symptom, cause and fix.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}

	sections := regexp.MustCompile(`(?m)^## `).Split(string(page), -1)[1:]
	var got []diag.Code
	for _, section := range sections {
		heading := regexp.MustCompile(`^.*`).FindString(section)
		got = append(got, diag.Code(heading))
		if !regexp.MustCompile(`(?s)\*\*Symptom\.\*\* .+\n\n\*\*Cause\.\*\* .+\n\n\*\*Fix\.\*\* `).MatchString(section) {
			t.Errorf("section %s: want Symptom, Cause and Fix", heading)
		}
	}

	if !slices.Equal(got, diag.Codes) {
		t.Errorf("sections: got %q; want %q", got, diag.Codes)
	}
}
