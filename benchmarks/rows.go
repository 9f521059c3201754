package main

import (
	"fmt"
	"slices"
)

// target is a number to reach: a row of the table.
type target struct {
	name    string
	stage   string // that measures it
	callers int    // on Redis; 0: does not matter
	bound   bound
	measure func(*results) verdict
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
	perSecond = "/s"
	octets    = "B"
	allocs    = "allocs"
	commands  = "commands"
)

// verdict is what a row came to.
type verdict struct {
	ours, theirs float64
	peer         string // whose theirs is; "" when there is none
	unit         string
	ratio        float64 // ours to theirs
}

// judged is the value that the bound is for.
func (v verdict) judged() float64 {
	if v.peer == "" {
		return v.ours
	}
	return v.ratio
}

// against compares ours with one peer.
func against(s series, peer, unit string) verdict {
	return verdict{median(s[ours]), median(s[peer]), peer, unit, ratio(s[ours], s[peer])}
}

// alone is a row without a peer.
func alone(v float64, unit string) verdict { return verdict{ours: v, unit: unit} }

// speed compares checks a second.
func speed(callers int, peer string) func(*results) verdict {
	return func(r *results) verdict { return against(r.callers[callers].of(sample.perSecond), peer, perSecond) }
}

// inMemory compares with the fastest peer.
func inMemory(keys int, callers func() int) func(*results) verdict {
	return func(r *results) verdict {
		s := r.memoryTimes(setting{keys, callers()})
		return against(s, s.lowest(func(name string) bool { return name != ours }), nanos)
	}
}

// memoryTimes is the time of a check. Callers on all cores wait for each other,
// so there CPU time does not tell.
func (r *results) memoryTimes(at setting) series {
	if at.callers == 1 {
		return r.memory[at].of(sample.callerNanos)
	}
	return r.memory[at].of(sample.nanos)
}

func oneCore() int  { return 1 }
func allCores() int { return cores }

// overhead compares with the fastest peer that writes headers.
func overhead(framework string) func(*results) verdict {
	return func(r *results) verdict {
		s, _ := r.overheads(framework, sample.callerNanos)
		return against(s, s.lowest(tells), nanos)
	}
}

func overheadAllocs(framework string) func(*results) verdict {
	return func(r *results) verdict {
		_, all := r.overheads(framework, sample.callerNanos)
		return alone(all[ours].allocs, allocs)
	}
}

// faster is the bound of "faster than every peer".
var faster = bound{true, 0.999, times}

// targets are the project's targets, in the order of its design.
var targets = []target{
	{"Redis, 1 caller: time of a check, to go-redis SET", stageCallers, 1, atMost(1.15, times),
		func(r *results) verdict { return against(r.callers[1].of(sample.nanos), goRedisSet, nanos) }},
	{"Redis, 16 callers: checks a second, to redis_rate", stageCallers, 16, atLeast(1.5, times), speed(16, redisRate)},
	{"Redis, 256 callers: checks a second, to redis_rate", stageCallers, 256, atLeast(5, times), speed(256, redisRate)},
	{"Redis, 256 callers: checks a second, to rueidis SET", stageCallers, 256, atLeast(1, times), speed(256, rueidisSet)},
	{"Redis, 256 callers: CPU of Redis for a check, to redis_rate", stageCallers, 256, atMost(0.25, times),
		func(r *results) verdict { return against(r.callers[256].of(sample.cpuMicros), redisRate, micros) }},
	{"Denied from the cache: time", stageDenied, 0, atMost(300, nanos),
		func(r *results) verdict { return alone(median(r.denied.nanos), nanos) }},
	{"Denied from the cache: allocations", stageDenied, 0, atMost(0, allocs),
		func(r *results) verdict { return alone(r.denied.allocs, allocs) }},
	{"Denied from the cache: commands that Redis saw", stageDenied, 0, atMost(0, commands),
		func(r *results) verdict { return alone(float64(r.denied.commands), commands) }},
	{"Redis: memory of a key, to redis_rate", stageUsage, 0, atMost(0.75, times), func(r *results) verdict {
		o, t := r.usage[ours], r.usage[redisRate]
		return verdict{o, t, redisRate, octets, o / t}
	}},
	{"Memory, hot key, 1 core: time, to the fastest peer", stageMemory, 0, faster, inMemory(1, oneCore)},
	{"Memory, hot key, all cores: time, to the fastest peer", stageMemory, 0, faster, inMemory(1, allCores)},
	{"Memory, 100,000 keys, 1 core: time, to the fastest peer", stageMemory, 0, faster, inMemory(keysInMemory, oneCore)},
	{"Memory, 100,000 keys, all cores: time, to the fastest peer", stageMemory, 0, faster, inMemory(keysInMemory, allCores)},
	{"Memory: allocations of a check", stageMemory, 0, atMost(0, allocs),
		func(r *results) verdict { return alone(r.memAll[ours].allocs, allocs) }},
	{"net/http middleware: time added, to the fastest peer with headers", stageServe, 0, atMost(0.8, times), overhead(netHTTP)},
	{"gin middleware: time added, to the fastest peer with headers", stageServe, 0, atMost(0.8, times), overhead(inGin)},
	{"echo middleware: time added, to the fastest peer with headers", stageServe, 0, atMost(0.8, times), overhead(inEcho)},
	{"net/http middleware: allocations added", stageServe, 0, atMost(8, allocs), overheadAllocs(netHTTP)},
	{"gin middleware: allocations added", stageServe, 0, atMost(8, allocs), overheadAllocs(inGin)},
	{"echo middleware: allocations added", stageServe, 0, atMost(8, allocs), overheadAllocs(inEcho)},
}

// row is a line of the table.
type row struct {
	name                        string
	ours, theirs, ratio, target string
	ok                          bool
}

// verdict is ok, or short of the target.
func (r row) verdict() string {
	if r.ok {
		return "ok"
	}
	return "short"
}

func (t target) row(r *results) row {
	v := t.measure(r)
	out := row{
		name: t.name, ours: figure(v.ours, v.unit), theirs: "-", ratio: "-",
		target: t.bound.String(), ok: t.bound.holds(v.judged()),
	}
	if t.bound == faster {
		out.target = "< 1.00x"
	}
	if v.peer != "" {
		out.theirs = figure(v.theirs, v.unit) + " " + v.peer
		out.ratio = figure(v.ratio, times)
	}
	return out
}

// rows are the lines of the chosen targets.
func (b *bench) rows() []row {
	var out []row
	for _, t := range b.targets() {
		out = append(out, t.row(&b.results))
	}
	return out
}

func anyShort(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return !r.ok })
}
