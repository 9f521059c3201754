package httpclient

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/pacer"
)

// Adaptive is an http.RoundTripper that reads from each answer how much is left
// of the server's limit and paces the next requests, so that clients that know
// nothing of each other share the limit evenly and hardly ever see a 429. It
// needs no store. The zero value is ready to use:
//
//	client := &http.Client{Transport: &httpclient.Adaptive{}}
//
// It reads RateLimit-Remaining, -Limit, -Reset and -Policy, the lists of the
// newer drafts, X-RateLimit-*, and Retry-After on 429 and 503; any part of them
// will do, and what is malformed is ignored. A server that sends none of them
// and refuses nothing is called without delay. A refusal is returned and not
// sent again: as Base of a [Transport], Adaptive paces and Transport replays.
//
// The law. Every client leaves a reserve of 8 units in the bucket, a quarter of
// a bucket that is smaller than 32. Until an answer shows less than that, or a
// refusal, there is no pacing: a full bucket is spent as fast as the caller
// likes. From then on requests leave one after the other at the pace
//
//	share · rate · exp((remaining - reserve) / (1.2·reserve))
//
// rate is what the server tells, or else one a second. The exponent acts at
// once. All clients see the same remaining, so all slow down together while it
// shrinks, and what has gathered in a pause is spent together. The share is what
// a client has learned: an answer with less than the reserve that is not more
// than the one before takes up to 2 % of it, a refusal a fifth, and every second
// with more than the reserve adds up to 0.3 % of the rate.
//
// Why it settles. Too much in all, and remaining falls; too little, and it
// rises: the exponent turns both around, and the share moves until remaining
// stays at the reserve, where the exponent is 1. Whoever takes more hears more
// answers and so yields more often, while growing is by time and the same for
// all but for the root of the share: large shares shrink to small ones until all
// are equal. In a steady state there are then as many units in the bucket as
// keep chance from emptying it.
//
// Ten callers in two processes on an empty bucket of 4,500 an hour are refused
// 0.44 % of their requests, which are the ten that they begin with
// (examples/simulate prints that beside other strategies).
//
// Where it is weak. A bucket of one or two units tells nothing before it
// refuses; there clients learn from refusals alone, and not to share evenly.
// With RateLimit-Remaining alone a small bucket looks like a large one that is
// nearly empty: clients leave up to half of the limit unused until their shares
// have changed by a factor of two and remaining has not.
//
// The fields must not be changed after first use.
type Adaptive struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Key says which limit a request counts against; nil means [ByHost]. With an
	// error the request is not sent.
	Key func(*http.Request) (string, error)

	// Observe is called once for each RoundTrip, before it returns. It must not
	// block, nor change the request.
	Observe func(*http.Request, Event)

	mu     sync.Mutex
	pacers map[string]*paced
}

// paced is a Pacer and when it was last asked for.
type paced struct {
	pacer.Pacer
	used time.Time
}

// maxPacers bounds what servers that are called once leave behind. The one that
// was not called for longest makes room; its limit is learned anew.
const maxPacers = 1024

// RoundTrip sends the request when its turn has come, or returns the error of
// its context.
func (a *Adaptive) RoundTrip(r *http.Request) (*http.Response, error) {
	var e Event
	resp, err := a.send(r, &e)
	if a.Observe != nil {
		e.Reason, e.Err = Answered, err
		switch {
		case err != nil:
			e.Reason = Failed
		case resp.StatusCode == http.StatusTooManyRequests:
			e.Reason = TooManyTries
		}
		if err == nil {
			e.Status = resp.StatusCode
		}
		a.Observe(r, e)
	}
	return resp, err
}

func (a *Adaptive) send(r *http.Request, e *Event) (*http.Response, error) {
	key := a.Key
	if key == nil {
		key = ByHost
	}
	name, err := key(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	now := time.Now()
	p := a.pacer(name, now)
	for d := p.Next(now); d > 0; d = p.Again(time.Now()) {
		err := rest(r.Context(), d)
		e.Waited = time.Since(now)
		if err != nil {
			p.Done(time.Now(), 0, nil)
			closeBody(r)
			return nil, err
		}
	}
	e.Tries = 1
	base := a.Base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err := base.RoundTrip(r)
	if err != nil {
		p.Done(time.Now(), 0, nil)
		return nil, err
	}
	p.Done(time.Now(), resp.StatusCode, resp.Header)
	return resp, nil
}

// CloseIdleConnections closes those of Base, for http.Client's method of that
// name.
func (a *Adaptive) CloseIdleConnections() {
	base := a.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// pacer is the one of that name.
func (a *Adaptive) pacer(name string, now time.Time) *pacer.Pacer {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pacers[name]
	if p == nil {
		if a.pacers == nil {
			a.pacers = make(map[string]*paced)
		}
		if len(a.pacers) >= maxPacers {
			oldest := ""
			for n, p := range a.pacers {
				if oldest == "" || p.used.Before(a.pacers[oldest].used) {
					oldest = n
				}
			}
			delete(a.pacers, oldest)
		}
		p = new(paced)
		a.pacers[name] = p
	}
	p.used = now
	return &p.Pacer
}

// rest sleeps, unless the context ends before.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
