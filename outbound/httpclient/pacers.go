package httpclient

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/pacer"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// pacers holds a pacer for each key. The zero value is ready to use.
type pacers struct {
	longest time.Duration // Pacer.Longest

	mu    sync.Mutex
	paced map[string]*paced
}

type paced struct {
	pacer.Pacer
	lastUsed time.Time
}

// maxPacers bounds the memory. The least recently used pacer is dropped, and its limit learned
// again.
const maxPacers = 1024

// get returns the pacer of a key.
func (ps *pacers) get(key string) *pacer.Pacer {
	now := time.Now()
	ps.mu.Lock()
	defer ps.mu.Unlock()

	p := ps.paced[key]
	if p == nil {
		if ps.paced == nil {
			ps.paced = make(map[string]*paced)
		}

		if len(ps.paced) >= maxPacers {
			delete(ps.paced, slices.MinFunc(slices.Collect(maps.Keys(ps.paced)), func(a, b string) int {
				return ps.paced[a].lastUsed.Compare(ps.paced[b].lastUsed)
			}))
		}
		p = &paced{Pacer: pacer.Pacer{Longest: ps.longest}}
		ps.paced[strings.Clone(key)] = p // key may be a part of a long URL
	}

	p.lastUsed = now
	return &p.Pacer
}

// pacePolicy is the policy in the WaitError of a request that would be paced for too long.
const pacePolicy = "pace"

// waitForPace sleeps until the pacer lets the request go. On an error the request is over for the
// pacer.
func waitForPace(p *pacer.Pacer, r *http.Request, route string, deadline time.Time, e *Event) error {
	id, d, waits := p.Next(time.Now(), route, available(r.Context(), deadline))
	for ; d > 0; d = p.Again(time.Now(), route, id) {
		var err error
		if longest := available(r.Context(), deadline); d > longest {
			err = fmt.Errorf("held back: %w", &turns.WaitError{Subject: "host:" + hostOf(r), Policy: pacePolicy, Needed: d, Patience: longest})
		} else {
			err = sleep(r.Context(), d, e)
		}

		if err != nil {
			if waits {
				p.Cancel(id)
			}
			return err
		}
	}
	return nil
}

// routeOf is the part of a request that says by which limits of its Key it may be: its method and the first
// segment of its path.
func routeOf(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.Path, "/")
	segment, _, _ := strings.Cut(path, "/")
	return r.Method + " " + segment
}
