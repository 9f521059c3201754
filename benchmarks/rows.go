package main

import (
	"cmp"
	"fmt"
	"slices"
)

// target is a number that the project wants to reach: a row of the table.
type target struct {
	name    string
	stage   string // that measures it
	callers int    // on Redis; 0: does not matter
	bound   bound
	measure func(*results) verdict
	why     func(*results) string // where the time goes, if the row is short; nil: not known
}

// bound is the value that a row's ratio, or ours where there is no peer, must
// not be on the wrong side of.
type bound struct {
	most  bool // at most the value; otherwise at least
	value float64
	unit  string
}

func atMost(v float64, unit string) bound  { return bound{true, v, unit} }
func atLeast(v float64, unit string) bound { return bound{false, v, unit} }

func (b bound) holds(v float64) bool {
	if b.most {
		return v <= b.value
	}
	return v >= b.value
}

func (b bound) String() string {
	sign := ">="
	if b.most {
		sign = "<="
	}
	return fmt.Sprintf("%s %s", sign, figure(b.value, b.unit))
}

// The units of figures.
const (
	times     = "x"
	nanos     = "ns"
	micros    = "us"
	millis    = "ms"
	perSecond = "/s"
	octets    = "B"
	allocs    = "allocs"
	commands  = "commands"
)

// verdict is what a row came to in a run.
type verdict struct {
	ours, theirs float64
	peer         string // whose theirs is; "" when there is none
	unit         string
	ratio        float64   // ours to theirs
	rounds       []float64 // what is judged, round by round, where there are rounds
}

// judged is the value that the bound is for.
func (v verdict) judged() float64 {
	if v.peer == "" {
		return v.ours
	}
	return v.ratio
}

// judgedUnit is its unit.
func (v verdict) judgedUnit() string {
	if v.peer == "" {
		return v.unit
	}
	return times
}

// against compares ours with one peer.
func against(s series, peer, unit string) verdict {
	each := ratios(s[ours], s[peer])
	return verdict{median(s[ours]), median(s[peer]), peer, unit, median(each), each}
}

// alone is a row without a peer.
func alone(rounds []float64, unit string) verdict {
	return verdict{ours: median(rounds), unit: unit, rounds: rounds}
}

// row is a line of the table.
type row struct {
	name                                string
	ours, theirs, ratio, spread, target string
	ok                                  bool
	why                                 string // it is short
}

// verdict is ok, or short of the target.
func (r row) verdict() string {
	if r.ok {
		return "ok"
	}
	return "short"
}

func (r row) cells() []string {
	return []string{r.name, r.ours, r.theirs, r.ratio, r.spread, r.target, r.verdict()}
}

// row is that of the median run. The spread is over the rounds of all runs.
func (t target) row(runs []results) row {
	var all []verdict
	var rounds []float64
	for i := range runs {
		v := t.measure(&runs[i])
		all, rounds = append(all, v), append(rounds, v.rounds...)
	}
	v := t.bound.middle(all)
	out := row{
		name: t.name, ours: figure(v.ours, v.unit), theirs: "-", ratio: "-", spread: "-",
		target: t.bound.String(), ok: t.bound.holds(v.judged()),
	}
	if t.bound == faster {
		out.target = "< 1.00x"
	}
	if v.peer != "" {
		out.theirs = figure(v.theirs, v.unit) + " " + v.peer
		out.ratio = figure(v.ratio, times)
	}
	if len(rounds) > 1 {
		out.spread = figure(slices.Min(rounds), v.judgedUnit()) + " to " + figure(slices.Max(rounds), v.judgedUnit())
	}
	if !out.ok && t.why != nil {
		all := merge(runs)
		out.why = t.why(&all)
	}
	return out
}

// middle is the median verdict. Of an even number it is the worse one.
func (b bound) middle(all []verdict) verdict {
	all = slices.SortedFunc(slices.Values(all), func(x, y verdict) int { return cmp.Compare(x.judged(), y.judged()) })
	if b.most {
		return all[len(all)/2]
	}
	return all[(len(all)-1)/2]
}

// rowsOf returns the lines of the chosen targets.
func (s settings) rowsOf(runs []results) []row {
	var out []row
	for _, t := range s.targets() {
		out = append(out, t.row(runs))
	}
	return out
}

func anyShort(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return !r.ok })
}
