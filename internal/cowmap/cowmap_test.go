package cowmap

import (
	"sync"
	"testing"
)

// Concurrent updates lose nothing, and a map that was loaded before does not change.
func TestUpdate(t *testing.T) {
	var m Map[int, int]
	if got := m.Load()[1]; got != 0 {
		t.Errorf("empty: got %d; want 0", got)
	}

	m.Update(func(all map[int]int) { all[0] = 1 })
	before := m.Load()
	var writers sync.WaitGroup
	for i := range 100 {
		writers.Go(func() { m.Update(func(all map[int]int) { all[i] += i + 1 }) })
	}

	writers.Wait()
	if len(before) != 1 || before[0] != 1 {
		t.Errorf("before: got %v; want it unchanged", before)
	}
	after := m.Load()
	if len(after) != 100 || after[0] != 2 || after[99] != 100 {
		t.Errorf("after: got %d entries, %d and %d; want 100, 2 and 100", len(after), after[0], after[99])
	}
}
