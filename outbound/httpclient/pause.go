package httpclient

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// pauses holds the Retry-After of each server until it has passed. The zero value is ready to use.
type pauses struct {
	mu     sync.RWMutex
	pauses map[pauseKey]pause
}

// maxPauses bounds the memory, since a partner that redirects can invent hosts. Beyond it a pause is deleted at random,
// and that server denies once more.
const maxPauses = 4096

// pauseKey says which requests wait: those of one caller to a host, or of all callers if caller is "".
type pauseKey struct{ host, caller string }

type pause struct {
	end    time.Time
	length time.Duration
}

// add begins a pause, unless one with a later end exists, and deletes those that have ended.
func (p *pauses) add(k pauseKey, length time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	maps.DeleteFunc(p.pauses, func(_ pauseKey, v pause) bool { return !v.end.After(now) })
	for other := range p.pauses {
		if len(p.pauses) < maxPauses {
			break
		}
		delete(p.pauses, other)
	}

	if end := now.Add(length); end.After(p.pauses[k].end) {
		if p.pauses == nil {
			p.pauses = make(map[pauseKey]pause)
		}
		k.host = strings.Clone(k.host) // it may be a part of a long URL
		p.pauses[k] = pause{end, length}
	}
}

// remaining returns how long a pause still holds a request back, and the length of that pause.
func (p *pauses) remaining(r *http.Request) (remaining, length time.Duration) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.pauses) == 0 {
		return 0, 0 // most requests need no hash of their credential
	}

	host := hostOf(r)
	for _, k := range []pauseKey{{host: host}, {host, callerOf(r)}} {
		if d := time.Until(p.pauses[k].end); d > remaining {
			remaining, length = d, p.pauses[k].length
		}
	}
	return remaining, length
}

// callerOf returns the caller of a request as the server sees it.
func callerOf(r *http.Request) string { return cmp.Or(credentialOf(r), "anonymous") }

// spread returns up to a tenth of a pause, so that the waiting requests do not all go at its end.
func spread(length time.Duration) time.Duration { return rand.N(length/10 + 1) }
