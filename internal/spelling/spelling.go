// Package spelling finds the name closest to a misspelt one, for error messages that ask "did you
// mean".
package spelling

import (
	"strings"
	"unicode/utf8"
)

// maxDistance is the largest [Distance] between a name and its misspelling.
const maxDistance = 2

// Closest returns the name with the smallest [Distance] from s, ignoring case. ok is false if every
// name differs by more than two letters or by all of its letters.
func Closest(names []string, s string) (name string, ok bool) {
	best := maxDistance + 1
	for _, candidate := range names {
		if d := utf8.RuneCountInString(s) - utf8.RuneCountInString(candidate); d < -maxDistance || d > maxDistance {
			continue
		}
		d := Distance(strings.ToLower(s), strings.ToLower(candidate))
		if d < best && d < utf8.RuneCountInString(candidate) {
			name, best, ok = candidate, d, true
		}
	}
	return name, ok
}

// Distance returns how many insertions, deletions, substitutions and transpositions of letters turn
// a into b: the Damerau-Levenshtein distance in its restricted form, in which no letter is edited
// twice.
func Distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	var older, old []int // the two previous rows

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
