package main

import (
	"fmt"
	"io"
	"time"
)

// progress says what is being done, since when, and how much longer it will take.
type progress struct {
	w         io.Writer
	begin     time.Time
	nth, runs int           // this run, counted from 1, and how many there are
	end       time.Time     // expected
	left      time.Duration // expected of the stages that have not begun
	took      map[string]time.Duration
}

func newProgress(w io.Writer) *progress { return &progress{w: w, begin: time.Now()} }

// plan counts what all runs will take.
func (p *progress) plan(s settings, runs int) {
	p.runs, p.took = runs, map[string]time.Duration{}
	for _, g := range stages {
		if !s.needs(g) {
			continue
		}
		p.took[g.id] = g.took
		if s.short {
			p.took[g.id] /= 4
		}
		p.left += p.took[g.id]
		if !g.once {
			p.left += p.took[g.id] * time.Duration(runs-1)
		}
	}
}

// time runs a stage, and expects it to take as long in the runs that follow.
func (p *progress) time(g stage, f func() error) error {
	begin, expected := time.Now(), p.took[g.id]
	p.end = begin.Add(p.left)
	p.left -= expected
	err := f()
	p.took[g.id] = time.Since(begin)
	if !g.once {
		p.left += (p.took[g.id] - expected) * time.Duration(p.runs-p.nth)
	}
	return err
}

func (p *progress) say(format string, args ...any) {
	left := max(time.Until(p.end), 0).Round(10 * time.Second)
	fmt.Fprintf(p.w, "[%4.0fs, about %v left] run %d of %d: %s\n",
		time.Since(p.begin).Seconds(), left, p.nth, p.runs, fmt.Sprintf(format, args...))
}
