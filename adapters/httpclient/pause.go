package httpclient

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// pauses remembers who has asked to be left alone, and until when.
type pauses struct {
	mu      sync.RWMutex
	until   map[pauseKey]pause
	sweepAt int // entries at which those that are over are dropped
}

// pauseKey is what a pause is for: all callers of a host, which are "", or one.
type pauseKey struct{ host, caller string }

type pause struct {
	until  time.Time
	length time.Duration
}

// add makes everybody wait. A pause that ends later than this one stays.
func (p *pauses) add(k pauseKey, length time.Duration) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := now.Add(length); until.After(p.until[k].until) {
		if p.until == nil {
			p.until = make(map[pauseKey]pause)
		}
		p.until[k] = pause{until, length}
	}
	if len(p.until) < max(p.sweepAt, 128) {
		return
	}
	for k, v := range p.until {
		if !v.until.After(now) {
			delete(p.until, k)
		}
	}
	p.sweepAt = 2 * len(p.until)
}

// left is how long the longest pause among keys still lasts, 0 for none.
func (p *pauses) left(keys ...pauseKey) (left, length time.Duration) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, k := range keys {
		if v, ok := p.until[k]; ok {
			if d := time.Until(v.until); d > left {
				left, length = d, v.length
			}
		}
	}
	return left, length
}

// callerOf is whom a host that refuses a request takes it to be from.
func callerOf(r *http.Request) string {
	if c := credentialOf(r); c != "" {
		return c
	}
	return "anybody"
}

// none tells whether nobody has asked so far, which is cheap to find out.
func (p *pauses) none() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.until) == 0
}

// spread is up to a tenth of a pause: those who have waited for its end do not
// all go at once.
func spread(length time.Duration) time.Duration { return rand.N(length/10 + 1) }
