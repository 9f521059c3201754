package main

import (
	"regexp"
	"slices"
	"testing"
)

func TestRowChooses(t *testing.T) {
	b := &bench{settings: settings{row: regexp.MustCompile("^Redis, (1|16) caller")}}
	if got := b.levelsToRun(); !slices.Equal(got, []int{1, 16}) {
		t.Errorf("levels are %v; want 1 and 16", got)
	}
	for _, s := range stages {
		if b.needs(s) != (s.id == stageCallers) {
			t.Errorf("stage %s is needed: %v", s.id, b.needs(s))
		}
	}
}
