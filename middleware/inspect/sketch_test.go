package inspect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

// Compared with exact counts: a count is too small by at most one 64th of all, never too large, and
// every subject with more than that is found.
func TestHeavyHittersBounds(t *testing.T) {
	for name, next := range map[string]func(*rand.Rand) int{
		"few":                       func(r *rand.Rand) int { return r.IntN(40) },
		"many alike":                func(r *rand.Rand) int { return r.IntN(5000) },
		"some loud":                 func(r *rand.Rand) int { return int(rand.NewZipf(r, 1.3, 1, 100_000).Uint64()) },
		"each once, and one attack": func(r *rand.Rand) int { return r.IntN(20) * r.IntN(1<<26) },
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			var h heavyHitters
			truth := map[string]int64{}
			const n = 20_000
			for i := range n {
				step := 1 + int64(i)*72/n // through six panes
				subject := fmt.Sprint(next(random))
				truth[subject]++
				h.add(step, subject)
			}

			found := map[string]deniedSubject{}
			for _, r := range h.top(panes * sketchSize) {
				found[r.Subject] = r
				if over := truth[r.Subject] - r.AtLeast; over < 0 || over > n/sketchSize {
					t.Errorf("%s came %d times; got %d; want at most that, and at least %d less", r.Subject, truth[r.Subject], r.AtLeast, n/sketchSize)
				}
			}

			for subject, count := range truth {
				if _, ok := found[subject]; count > n/sketchSize && !ok {
					t.Errorf("%s came %d times of %d and is not found", subject, count, n)
				}
			}
		})
	}
}

// Memory is bounded, and freed when it is old.
func TestHeavyHittersForgets(t *testing.T) {
	var h heavyHitters
	for i := range 5000 {
		h.add(1+int64(i%1000), fmt.Sprint(i, strings.Repeat("x", i)))
	}
	bytes := 0
	for _, p := range h.panes {
		for _, head := range p.sketch.counters {
			bytes += len(head.subject)
		}
	}

	if most := panes * sketchSize * maxSubject; bytes > most {
		t.Errorf("subjects take %d bytes; want at most %d", bytes, most)
	}
	h.add(100, "late")
	for _, r := range h.top(1000) {
		if r.Subject == "late" {
			t.Error("an old subject is counted as a current one")
		}
	}

	h.forget(1000 + panes*paneSteps)
	for i, p := range h.panes {
		if p.sketch != nil {
			t.Errorf("pane %d is kept; want all forgotten", i)
		}
	}
}

// A subject may be part of a request, which must not stay in memory.
func TestSketchKeepsNoRequest(t *testing.T) {
	request := "GET / HTTP/1.1\r\nWho: ip:192.0.2.7\r\nCookie: secret"
	subject := request[21:33]
	var s sketch
	s.add(1, subject)
	if got := s.counters[0].subject; got != "ip:192.0.2.7" || unsafe.StringData(got) == unsafe.StringData(subject) {
		t.Errorf("got %q; want a copy of ip:192.0.2.7", got)
	}
}

// A policy whose subjects are addresses takes about 44 kB, and any policy 232 kB: the bound of the
// package comment.
func TestSeriesIsBounded(t *testing.T) {
	fixed := unsafe.Sizeof(series{}) + panes*unsafe.Sizeof(sketch{})

	for _, tt := range []struct{ subject, want uintptr }{{24, 44_000}, {maxSubject, 232_000}} {
		if got := fixed + panes*sketchSize*tt.subject; got > tt.want {
			t.Errorf("subjects of %d bytes: got %d bytes a policy; want at most %d", tt.subject, got, tt.want)
		}
	}
}
