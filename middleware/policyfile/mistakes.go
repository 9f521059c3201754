package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// position is a line and a column, both from 1. The column counts characters.
type position struct{ line, column int }

var fileStart = position{1, 1}

// mistakes are what is wrong with a file.
type mistakes []mistake

type mistake struct {
	at   position
	text string
}

func (ms *mistakes) addf(at position, format string, args ...any) {
	*ms = append(*ms, mistake{at, fmt.Sprintf(format, args...)})
}

// once reports text that was seen before, and remembers the position of any other.
func (ms *mistakes) once(seen map[string]position, text string, at position) bool {
	before, twice := seen[text]
	if twice {
		ms.addf(at, "%s is repeated, it is first in line %d; want it once", quoted(text), before.line)
	} else {
		seen[text] = at
	}
	return !twice
}

// has reports whether there is a mistake at this position.
func (ms mistakes) has(at position) bool {
	return slices.ContainsFunc(ms, func(m mistake) bool { return m.at == at })
}

// maxReported bounds the message for a file that is not a policy file, which may
// have an error in every line.
const maxReported = 100

// err joins the mistakes by position. It is nil if there are none.
func (ms mistakes) err(file string) error {
	slices.SortStableFunc(ms, func(a, b mistake) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})

	var errs []error
	for _, m := range ms[:min(len(ms), maxReported)] {
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", file, m.at.line, m.at.column, m.text))
	}
	if more := len(ms) - maxReported; more > 0 {
		errs = append(errs, fmt.Errorf("%s: and %d more mistakes", file, more))
	}
	return errors.Join(errs...)
}

// oneOf lists names: "a, b or c".
func oneOf(names []string) string {
	if len(names) == 0 {
		return "a registered name, and this program registers none"
	}
	list := strings.Join(names, ", ")
	if last := len(names) - 1; last > 0 {
		list = strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return list
}
