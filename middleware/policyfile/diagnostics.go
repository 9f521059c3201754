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

// position is a line and a column, both from 1. The column counts characters.
type position struct{ line, column int }

// diagnostics are the errors found in a file.
type diagnostics []diagnostic

type diagnostic struct {
	at   position
	text string
}

func (ds *diagnostics) addf(at position, format string, args ...any) {
	*ds = append(*ds, diagnostic{at, fmt.Sprintf(format, args...)})
}

// has reports whether there is a diagnostic at this position.
func (ds diagnostics) has(at position) bool {
	return slices.ContainsFunc(ds, func(d diagnostic) bool { return d.at == at })
}

// maxReported bounds the message for a file that is not a policy file, which may
// have an error in every line.
const maxReported = 100

// err joins the diagnostics by position. It is nil if there are none.
func (ds diagnostics) err(file string, data []byte) error {
	if len(ds) == 0 {
		return nil
	}
	slices.SortStableFunc(ds, func(a, b diagnostic) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})
	lines := bytes.Split(data, []byte("\n"))
	var errs []error
	for i, d := range ds {
		if i == maxReported {
			errs = append(errs, fmt.Errorf("%s: and %d more mistakes", file, len(ds)-maxReported))
			break
		}
		at := d.at.within(lines)
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", file, at.line, at.column, d.text))
	}
	return errors.Join(errs...)
}

// within returns p, moved back to the end of its line if it is beyond: the parser
// reports a missing value one or two columns too far.
func (p position) within(lines [][]byte) position {
	p.line = min(p.line, len(lines))
	p.column = min(p.column, utf8.RuneCount(lines[p.line-1])+1)
	return p
}

// clip bounds the text from the file that a message repeats.
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

// oneOf lists names, and the one closest to the written name: "a, b or c (did you
// mean b?)".
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
