package replay

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	maxFiles    = 100 // each has buffers
	maxExamples = 3   // lines that could not be read
	batchSize   = 512
)

// logs reads several logs as one, in a goroutine of its own. The next entry is the earliest
// of the logs' next entries, so files of a rotated log, or of several servers, may be given
// in any order. Entries of one file stay in order.
type logs struct {
	batches chan batch
	free    chan []entry // played batches, for reuse
	heads   heads
	stats   logStats
}

// batch is some entries, and the statistics when they were read.
type batch struct {
	entries []entry
	stats   logStats
}

// logStats are statistics of the lines read.
type logStats struct {
	lines     int64          // that are not empty
	malformed int64          // of these, no entries
	examples  []string       // the first few of them, with place and cause
	zone      *time.Location // of the first entry
	subSecond bool           // some times are not whole seconds
	err       error          // files that could not be read to their end
}

// read starts to read the sources. At the end it closes them and the channel of batches.
func read(ctx context.Context, sources []*source) *logs {
	l := &logs{batches: make(chan batch, 4), free: make(chan []entry, 4)}
	go l.run(ctx, sources)
	return l
}

func (l *logs) run(ctx context.Context, sources []*source) {
	defer close(l.batches)

	for _, s := range sources {
		defer s.file.Close()
		if e, ok := l.next(s); ok {
			l.heads = append(l.heads, head{s, e})
		}
	}

	heap.Init(&l.heads)
	if len(l.heads) > 0 {
		l.stats.zone = l.heads[0].source.clock.zone
	}

	entries := l.newBatch()
	for len(l.heads) > 0 {
		first := &l.heads[0]
		entries = append(entries, first.entry)
		if len(entries) == cap(entries) || first.source.mayBlock() {
			if !l.send(ctx, entries) {
				return
			}
			entries = l.newBatch()
		}
		if e, ok := l.next(first.source); ok {
			first.entry = e
			heap.Fix(&l.heads, 0)
		} else {
			heap.Pop(&l.heads)
		}
	}

	l.send(ctx, entries)
}

func (l *logs) newBatch() []entry {
	select {
	case entries := <-l.free:
		return entries[:0]
	default:
		return make([]entry, 0, batchSize)
	}
}

func (l *logs) send(ctx context.Context, entries []entry) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case l.batches <- batch{entries, l.stats}:
		return true
	case <-ctx.Done():
		return false
	}
}

// nextBatch returns the next batch. After the end of the context it returns batches that
// have been read already.
func (l *logs) nextBatch(ctx context.Context) (b batch, ok bool) {
	select {
	case b, ok = <-l.batches:
		return b, ok
	default:
	}
	select {
	case b, ok = <-l.batches:
	case <-ctx.Done():
	}
	return b, ok
}

// release returns a batch for reuse.
func (l *logs) release(b batch) {
	select {
	case l.free <- b.entries:
	default:
	}
}

// next returns the next entry of a source, and skips lines that are none.
func (l *logs) next(s *source) (entry, bool) {
	for {
		e, err := s.next()
		var badLine *lineError

		switch {
		case err == nil:
			l.stats.lines++
			l.stats.subSecond = l.stats.subSecond || s.clock.subSecond
			return e, true
		case errors.As(err, &badLine):
			l.stats.lines++
			l.stats.malformed++
			if len(l.stats.examples) < maxExamples {
				l.stats.examples = append(l.stats.examples, fmt.Sprintf("%s:%d: %v\n    %s", s.name, s.line, badLine, plain(badLine.text)))
			}
		default:
			if !errors.Is(err, io.EOF) {
				l.stats.err = errors.Join(l.stats.err, err)
			}
			return entry{}, false
		}
	}
}

// heads is a heap of next entries, the earliest first.
type heads []head

type head struct {
	source *source
	entry  entry
}

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return h[i].entry.at < h[j].entry.at }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)        { *h = append(*h, x.(head)) }
func (h *heads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
