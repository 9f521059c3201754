package httpclient

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a body that says nothing until it is closed.
type stuck struct {
	closed chan struct{}
	closes int
}

func (s *stuck) Read([]byte) (int, error) {
	<-s.closed
	return 0, net.ErrClosed
}

func (s *stuck) Close() error {
	if s.closes++; s.closes == 1 {
		close(s.closed)
	}
	return nil
}

// A body that is not worth waiting for is closed once, like any other.
func TestDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{closed: make(chan struct{})}
		begin := time.Now()
		discard(s)
		if took := time.Since(begin); s.closes != 1 || took != drainFor {
			t.Errorf("it was closed %d times, after %v; want once after %v", s.closes, took, drainFor)
		}
	})
}

// Backing off grows to its most and no further, and its random part is at most
// the half.
func TestBackoff(t *testing.T) {
	const ms = time.Millisecond
	for i, most := range []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 10_000 * ms, 10_000 * ms} {
		for range 1000 {
			if got := backoff(i + 1); got < most/2 || got > most {
				t.Fatalf("after %d refusals: got %v; want %v to %v", i+1, got, most/2, most)
			}
		}
	}
	if got := backoff(1 << 40); got < mostBackoff/2 || got > mostBackoff {
		t.Errorf("after very many refusals: got %v; want up to %v", got, mostBackoff)
	}
}

// Pauses that are over are forgotten, and a shorter one does not end a longer.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		if !p.none() {
			t.Error("there is a pause at the start")
		}
		forever := pauseKey{host: "forever"}
		p.add(forever, time.Hour)
		p.add(forever, time.Second)
		for i := range 100_000 {
			p.add(pauseKey{host: fmt.Sprint(i)}, time.Second)
			time.Sleep(100 * time.Millisecond)
			if len(p.until) > 128 {
				t.Fatalf("%d pauses are kept, of which 11 last; want at most 128", len(p.until))
			}
			if i == 35_000 {
				if left, length := p.left(pauseKey{host: "35000"}, forever, pauseKey{host: "nobody"}); left != time.Hour-3500*time.Second-100*time.Millisecond || length != time.Hour {
					t.Errorf("got %v left of %v; want those of the longest", left, length)
				}
			}
		}
		if left, _ := p.left(forever); left != 0 {
			t.Errorf("got %v left after hours; want 0", left)
		}
	})
}
