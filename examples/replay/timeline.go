package main

// timeline counts over time, in steps that double whenever the time does not
// fit any more: whatever a log's length, there are 120 to 240 of them once it
// is longer than two minutes.
type timeline struct {
	start int64 // microseconds since 1970
	step  int64 // microseconds
	used  int   // steps that have begun
	lines [][steps]int64
}

const steps = 240

// count counts one on a line. The time is not before that of any call before.
func (t *timeline) count(line int, at int64) {
	const second = 1_000_000
	if t.step == 0 {
		t.start, t.step = at-at%second, second
	}
	i := (at - t.start) / t.step
	for ; i >= steps; i = (at - t.start) / t.step {
		t.fold()
	}
	t.used = max(t.used, int(i)+1)
	t.lines[line][i]++
}

// fold makes each two steps one.
func (t *timeline) fold() {
	t.step *= 2
	t.used = (t.used + 1) / 2
	for n := range t.lines {
		line := &t.lines[n]
		for i := range steps / 2 {
			line[i] = line[2*i] + line[2*i+1]
		}
		clear(line[steps/2:])
	}
}
