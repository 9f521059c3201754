package httpclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// Pauses that have ended are deleted, and a shorter one does not end a longer one.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pauses
		forever := pauseKey{host: "forever"}
		p.add(forever, time.Hour)
		p.add(forever, time.Second)
		held := httptest.NewRequest(http.MethodGet, "http://forever/", http.NoBody)
		for i := range 100_000 {
			p.add(pauseKey{host: fmt.Sprint(i)}, time.Second)
			time.Sleep(100 * time.Millisecond)
			if len(p.pauses) > 128 {
				t.Fatalf("got %d pauses; want at most 128, since 11 have not ended", len(p.pauses))
			}

			if i == 35_000 {
				p.add(pauseKey{"forever", callerOf(held)}, time.Second)
				if remaining, length := p.remaining(held); remaining != time.Hour-3500*time.Second-100*time.Millisecond || length != time.Hour {
					t.Errorf("got %v remaining of %v; want those of the longest", remaining, length)
				}
			}
		}

		if remaining, _ := p.remaining(held); remaining != 0 {
			t.Errorf("got %v remaining after hours; want 0", remaining)
		}
	})
}

// The number of pauses that have not ended is bounded.
func TestPausesAreBounded(t *testing.T) {
	var p pauses
	for i := range 2 * maxPauses {
		p.add(pauseKey{host: fmt.Sprint(i)}, time.Hour)
		if want := min(i+1, maxPauses); len(p.pauses) != want {
			t.Fatalf("got %d pauses after %d; want %d", len(p.pauses), i+1, want)
		}
	}
}
