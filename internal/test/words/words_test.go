// Package words finds words that the project does not use (see words.txt), and functions without
// paragraphs.
package words

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

const root = "../../.."

// exempt are the files that speak of old names and of other projects.
var exempt = []string{"CHANGELOG.md", "docs/migration.md", "internal/test/words/"}

func TestWords(t *testing.T) {
	race.Skip(t)

	rules := parse(t)
	for _, name := range tracked(t, "*.go", "*.lua", "*.md", "*.html", "*.json", "*.yaml") {
		if slices.ContainsFunc(exempt, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range rules.find(name, string(text)) {
			t.Error(found)
		}
	}
}

// tracked returns the files of the repository that match one of the patterns.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"ls-files", "-z"}, patterns...)...)
	cmd.Dir = root
	files, err := cmd.Output()
	if err != nil {
		t.Skip("not a clone of the repository: ", err)
	}
	return strings.Split(strings.Trim(string(files), "\x00"), "\x00")
}

//go:embed words.txt
var list string

type rule struct {
	pattern *regexp.Regexp
	exact   bool // for the line as it is
	instead string
}

type phrase struct {
	pattern *regexp.Regexp
	folder  string // where it is allowed; "" is everywhere
}

type rules struct {
	any, exact *regexp.Regexp // find what one of banned may find, in the words of a line and in the line as it is
	banned     []rule
	allowed    []phrase
	clean      map[string]bool // lines in which they found nothing
}

func parse(t *testing.T) (r rules) {
	t.Helper()
	r.clean = map[string]bool{}
	var words, exacts []string
	for line := range strings.Lines(list) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		pattern, instead, ok := strings.Cut(line, "\t")
		if allowed, isAllowed := strings.CutPrefix(pattern, "+"); isAllowed {
			r.allowed = append(r.allowed, phrase{regexp.MustCompile(`\b(?:` + allowed + `)\b`), instead})
			continue
		}
		if !ok {
			t.Fatalf("words.txt: %q has no replacement", line)
		}
		exact, isExact := strings.CutPrefix(pattern, "=")
		if isExact {
			exacts = append(exacts, exact)
		} else {
			exact = `\b(?:` + pattern + `)\b`
			words = append(words, pattern)
		}
		r.banned = append(r.banned, rule{regexp.MustCompile(exact), isExact, instead})
	}

	r.any = regexp.MustCompile(`\b(?:` + strings.Join(words, "|") + `)\b`)
	r.exact = regexp.MustCompile(strings.Join(exacts, "|"))
	return r
}

// find returns a line for each word of a text that is banned.
func (r rules) find(name, text string) (found []string) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if r.clean[line] {
			continue
		}
		plain := split(line)
		if !r.any.MatchString(plain) && !r.exact.MatchString(line) {
			r.clean[line] = true
			continue
		}
		for _, phrase := range r.allowed {
			if strings.HasPrefix(name, phrase.folder) {
				plain = phrase.pattern.ReplaceAllString(plain, "")
			}
		}
		for _, rule := range r.banned {
			searched := plain
			if rule.exact {
				searched = line
			}
			if word := rule.pattern.FindString(searched); word != "" {
				found = append(found, fmt.Sprintf("%s:%d: %q: write %s", name, number, word, rule.instead))
			}
		}
	}
	return found
}

// split separates the words of identifiers: newRide is "new ride".
func split(line string) string {
	var b strings.Builder
	is := func(i int, low, high byte) bool { return i >= 0 && i < len(line) && line[i] >= low && line[i] <= high }
	upper := func(i int) bool { return is(i, 'A', 'Z') }
	lower := func(i int) bool { return is(i, 'a', 'z') }
	for i := range len(line) {
		if upper(i) && (lower(i-1) || is(i-1, '0', '9') || upper(i-1) && lower(i+1)) {
			b.WriteByte(' ')
		}
		b.WriteByte(line[i])
	}
	return strings.ToLower(strings.ReplaceAll(b.String(), "_", " "))
}
