package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// columns is how wide a terminal is at least. Only a word that is longer makes a longer line.
const columns = 80

// note prints a sentence, in lines.
func note(w io.Writer, format string, args ...any) { fold(w, "", "  ", fmt.Sprintf(format, args...)) }

// fold prints text in lines that begin with an indent, the first with its own.
func fold(w io.Writer, first, indent, text string) {
	line := first
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
			line += word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > columns:
			fmt.Fprintln(w, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	fmt.Fprintln(w, line)
}

// table is rows of cells, of which the first row has the titles. A row of one cell is text below the
// row before.
type table [][]string

func (t *table) add(cells ...string) { *t = append(*t, cells) }

// print prints the rows. A first cell for which there is no room has a line of its own.
func (t table) print(w io.Writer, indent string) {
	widths, room := make([]int, len(t[0])), columns-len(indent)
	for i := len(widths) - 1; i >= 0; i-- {
		for _, row := range t {
			if len(row) > 1 && (i > 0 || utf8.RuneCountInString(row[i]) <= room) {
				widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			}
		}
		room -= widths[i] + 2
	}

	for _, row := range t {
		if len(row) == 1 {
			fold(w, indent+"  ", indent+"    ", row[0])
			continue
		}
		if utf8.RuneCountInString(row[0]) > widths[0] {
			fmt.Fprintln(w, indent+row[0])
			row[0] = ""
		}
		line := indent
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

func printJSON(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // of types that have no errors; a writer that is gone gets nothing
}

// plain replaces characters that could control a terminal, as others may have written s.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if !strconv.IsPrint(c) {
			return '?'
		}
		return c
	}, s)
}

const day = 24 * time.Hour

// human is a duration in whole seconds, at least one; from two days on in days and hours.
func human(d time.Duration) string {
	if d >= 2*day {
		days, hours := d.Round(time.Hour)/day, d.Round(time.Hour)%day/time.Hour
		return strings.TrimSuffix(fmt.Sprintf("%dd%dh", days, hours), "0h")
	}
	s := max(d.Round(time.Second), time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return strings.Replace(s, "h0m", "h", 1)
}

// span is a duration that may be in days and weeks: 7d, 2w, 1d12h.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }
func (s *span) Type() string   { return "time" }

var spans = regexp.MustCompile(`^(?:(\d{1,4})w)?(?:(\d{1,4})d)?(.*)$`)

func (s *span) Set(text string) error {
	parts := spans.FindStringSubmatch(text)
	weeks, _ := strconv.Atoi(parts[1])
	days, _ := strconv.Atoi(parts[2])
	rest, err := time.ParseDuration(cmp.Or(parts[3], "0"))
	if err != nil || text == "" {
		return fmt.Errorf("%q is no time; want one such as 30m, 12h, 7d or 2w", text)
	}
	*s = span(time.Duration(7*weeks+days)*day + rest)
	return nil
}
