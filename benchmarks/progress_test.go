package main

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The time left is that of the stages that have not begun; a stage is expected to take
// as long as in the run before.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out)
		s := settings{row: regexp.MustCompile("^(Cluster|Ring)"), progress: p}
		p.plan(s, 2) // 10 s and 5 s, twice
		for p.nth = 1; p.nth <= 2; p.nth++ {
			for _, g := range stages {
				if s.needs(g) {
					_ = p.time(g, func() error {
						p.say("%s", g.id)
						time.Sleep(g.took + 20*time.Second)
						return nil
					})
				}
			}
		}
		want := "[   0s, about 30s left] run 1 of 2: cluster\n" +
			"[  30s, about 40s left] run 1 of 2: Ring\n" +
			"[  55s, about 1m0s left] run 2 of 2: cluster\n" +
			"[  85s, about 30s left] run 2 of 2: Ring\n"
		if out.String() != want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), want)
		}
	})
}
