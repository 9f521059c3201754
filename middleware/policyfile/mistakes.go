package policyfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-e377111c/ratelimit/internal/spelling"
)

// place is a line and a column, both from 1; the column counts characters.
type place struct{ line, column int }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

// mistakes are what is wrong with a file.
type mistakes []mistake

type mistake struct {
	at   place
	text string
}

func (m *mistakes) addf(at place, format string, args ...any) {
	*m = append(*m, mistake{at, fmt.Sprintf(format, args...)})
}

// has reports that there is one already in this place.
func (m *mistakes) has(at place) bool {
	return slices.ContainsFunc(*m, func(known mistake) bool { return known.at == at })
}

// maxTold is more than anybody reads; a file that is none of ours has as many as
// it has lines.
const maxTold = 100

// err joins the mistakes by place; it is nil if there are none.
func (m *mistakes) err(file string, data []byte) error {
	if len(*m) == 0 {
		return nil
	}
	slices.SortStableFunc(*m, func(a, b mistake) int { return a.at.compare(b.at) })
	lines := bytes.Split(data, []byte("\n"))
	var errs []error
	for i, known := range *m {
		if i == maxTold {
			errs = append(errs, fmt.Errorf("%s: and %d mistakes more", file, len(*m)-maxTold))
			break
		}
		at := known.at.within(lines)
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", file, at.line, at.column, known.text))
	}
	return errors.Join(errs...)
}

// within is the place, or the end of its line: the parser puts what is missing
// one or two behind that.
func (p place) within(lines [][]byte) place {
	p.line = min(p.line, len(lines))
	p.column = min(p.column, utf8.RuneCount(lines[p.line-1])+1)
	return p
}

// clip bounds what a message repeats of the file.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// oneOf lists names for a sentence: "a, b or c", with the one that looks like
// what was written behind: "a, b or c (did you mean b?)".
func oneOf(names []string, written string) string {
	list := strings.Join(names, ", ")
	if last := len(names) - 1; last > 0 {
		list = strings.Join(names[:last], ", ") + " or " + names[last]
	}
	if name, ok := spelling.Closest(names, written); ok {
		list += " (did you mean " + name + "?)"
	}
	return list
}
