package tat

import (
	"testing"
	"time"
)

// Time is the inverse of At.
func TestTime(t *testing.T) {
	for _, want := range []time.Time{
		time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2026, 11, 22, 5, 0, 0, 123_456_700, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 999_999_900, time.UTC),
	} {
		if got := Time(At(want)); !got.Equal(want) {
			t.Errorf("got %v; want %v", got, want)
		}
	}
}
