package replay

import "testing"

// A timeline of any length loses no count, and keeps counts at their times.
func TestTimelineFolds(t *testing.T) {
	for _, seconds := range []int64{1, 100, steps, steps + 1, 5000, 86_400, 40 * 365 * 86_400} {
		line := timeline{lines: make([][steps]int64, 2)}

		const n = 1000
		first := int64(1_795_182_936_250_000)
		for range n {
			line.count(1, first)
		}
		for i := range int64(n) {
			line.count(0, first+seconds*1_000_000*i/n)
		}

		sum, last := int64(0), 0
		for i, c := range line.lines[0] {
			sum += c
			if c > 0 {
				last = i
			}
		}

		if sum != n || line.lines[1][0] != n {
			t.Errorf("%d s: got %d counts, %d of the start in the first step; want %d", seconds, sum, line.lines[1][0], n)
		}
		if last != line.used-1 || seconds > steps && line.used < steps/2 {
			t.Errorf("%d s: got %d steps, the last count in %d", seconds, line.used, last)
		}

		spans, spanned := line.spans(0), int64(0)
		for i, s := range spans {
			spanned += s.count
			if s.to <= s.from || i > 0 && s.from != spans[i-1].to {
				t.Errorf("%d s: got %+v after %+v", seconds, s, spans[i-1])
			}
		}

		end := float64(line.last-line.start) / 1e6
		if got := spans[len(spans)-1].to; spanned != n || len(spans) > 1 && got != end || got < end {
			t.Errorf("%d s: got %d counts up to %v s; want %d up to %v", seconds, spanned, got, n, end)
		}
		if line.start != first-250_000 {
			t.Errorf("%d s: got the start %d; want the whole second of %d", seconds, line.start, first)
		}
	}
}
