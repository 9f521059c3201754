package httpclient

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever Retry-After says, the wait is one that can be waited for; seconds
// and dates that we wrote are read as they were meant.
func FuzzRetryAfter(f *testing.F) {
	for _, field := range []string{"", "0", "1", "120", "-1", "+1", "1.5", "1e3", " 7 ", "0x10", "99999999999999999999", "9223372036854775807",
		"Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 01 Jan 0000 00:00:00 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "١٢"} {
		f.Add(field, "Sun, 06 Nov 1994 08:49:37 GMT", uint32(60))
		f.Add(field, "", uint32(0))
	}
	f.Fuzz(func(t *testing.T, field, date string, n uint32) {
		h := http.Header{"Retry-After": {field}, "Date": {date}}
		if wait, ok := afterOf(h); wait < 0 || wait > maxDelay || !ok && wait != 0 {
			t.Errorf("Retry-After %q, Date %q: got %v, %v; want 0 to %v", field, date, wait, ok, maxDelay)
		}
		n %= uint32(maxDelay / time.Second)
		want := time.Duration(n) * time.Second
		h.Set("Retry-After", fmt.Sprint(n))
		if wait, ok := afterOf(h); wait != want || !ok {
			t.Errorf("Retry-After %d: got %v, %v; want %v", n, wait, ok, want)
		}
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		h.Set("Date", now.Format(http.TimeFormat))
		h.Set("Retry-After", now.Add(want).Format(http.TimeFormat))
		if wait, ok := afterOf(h); wait != want || !ok {
			t.Errorf("Retry-After %v after Date: got %v, %v", want, wait, ok)
		}
	})
}

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
