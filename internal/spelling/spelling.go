// Package spelling finds the name that a misspelt one was meant to be, for error
// messages that ask "did you mean".
package spelling

import (
	"strings"
	"unicode/utf8"
)

// maxSlips is how many letters may be wrong in a name that is still recognised.
const maxSlips = 2

// Closest returns the name that s was most likely meant to be: the one with the
// fewest slips, whatever the case of the letters. It reports false if each of
// them differs by more than two, or by all of its letters.
func Closest(names []string, s string) (name string, ok bool) {
	best := maxSlips + 1
	for _, candidate := range names {
		if d := utf8.RuneCountInString(s) - utf8.RuneCountInString(candidate); d < -maxSlips || d > maxSlips {
			continue
		}
		slips := Distance(strings.ToLower(s), strings.ToLower(candidate))
		if slips < best && slips < utf8.RuneCountInString(candidate) {
			name, best, ok = candidate, slips, true
		}
	}
	return name, ok
}

// Distance returns how many letters must be added, left out, changed or swapped
// with the next to turn a into b: the distance of Damerau and Levenshtein, with no
// letter touched twice.
func Distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	var older, old []int // the two rows before
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range from {
		older, old, row = old, row, make([]int, len(to)+1)
		row[0] = i + 1
		for j := range to {
			change := old[j]
			if from[i] != to[j] {
				change++
			}
			row[j+1] = min(change, old[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && from[i] == to[j-1] && from[i-1] == to[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
	}
	return row[len(to)]
}
