package replay

// timeline counts over time, in steps that double whenever the time no longer fits. A log
// of more than two minutes, however long, has 120 to 240 steps.
type timeline struct {
	start int64 // microseconds since 1970
	step  int64 // microseconds
	last  int64 // microseconds since 1970, of the last count
	used  int   // steps that have begun
	lines [][steps]int64
}

const steps = 240

// count adds one to a line. Times never go back.
func (t *timeline) count(line int, at int64) {
	const second = 1_000_000
	if t.step == 0 {
		t.start, t.step = at-at%second, second
	}
	i := (at - t.start) / t.step
	for ; i >= steps; i = (at - t.start) / t.step {
		t.fold()
	}
	t.last = at
	t.used = max(t.used, int(i)+1)
	t.lines[line][i]++
}

// fold merges each two steps into one.
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

// span is a count between two times, in seconds from the start.
type span struct {
	from, to float64
	count    int64
}

// spans returns the steps of a line. The last one ends with the log. If it is short it is
// merged into the one before, as a rate over a moment means nothing.
func (t *timeline) spans(line int) []span {
	spans := make([]span, 0, t.used)
	for i, n := range t.lines[line][:t.used] {
		spans = append(spans, span{seconds(int64(i) * t.step), seconds(int64(i+1) * t.step), n})
	}
	if len(spans) > 1 {
		last := &spans[len(spans)-1]
		rest := seconds(t.last-t.start) - last.from
		last.to = last.from + rest
		if rest < seconds(t.step)/2 {
			spans[len(spans)-2].to = last.to
			spans[len(spans)-2].count += last.count
			spans = spans[:len(spans)-1]
		}
	}
	return spans
}

func seconds(micros int64) float64 { return float64(micros) / 1e6 }
