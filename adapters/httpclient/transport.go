package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Transport is an http.RoundTripper whose requests wait for their turn and obey
// refusals. It is built by [New] and is safe for concurrent use; make one and
// keep it.
//
// # Turns
//
// A request is sent when all policies have been charged for it, in one step by
// [gcra.Wait], and its turn has come. If the turn would come later than MaxWait,
// the policy's MaxDelay or the context's deadline, RoundTrip returns at once
// with an error that wraps a [*gcra.WaitError], and nothing is charged. A
// request whose context ends while it waits is not sent; its turn is lost. Each
// try takes a turn, as servers may count what they refuse.
//
// # Refusals
//
// A refusal is a response with status 429, or with 503 and a Retry-After. (A
// 503 without is a failure like any 5xx.) The request is sent again when
// Retry-After, in seconds or as a date, has passed, and up to a tenth of it more
// so that not all come at once. After a refusal that names no time to come it is
// sent again after a random part of half a second, doubled with each try up to
// ten seconds.
//
// RoundTrip returns the refusal itself, body and all, when the request may not
// be sent again, when MaxTries were refused, and at once when the wait would be
// beyond MaxWait or the context's deadline. A request may be sent again if its
// method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE or it has an
// Idempotency-Key header, and it has no body or a GetBody, which http.NewRequest
// sets for the usual readers.
//
// # Pauses
//
// A Retry-After holds all other requests to that host back as well, those that
// arrive and those whose turn comes: after a 429 the ones with the same
// Authorization header, after a 503 all. A request that cannot wait for so long
// gets an error that wraps a [*gcra.WaitError] with the policy "Retry-After",
// and is not sent. After an hour, or MaxWait if that is longer, the server is
// asked again whatever it said. Pauses are this Transport's; other processes
// find out for themselves.
type Transport struct {
	base     http.RoundTripper
	store    gcra.Store
	policies []Policy
	maxTries int
	maxWait  time.Duration
	observe  func(*http.Request, Event)
	pauses   pauses
}

// maxPause is how long one server may keep us away without being asked again,
// unless callers are ready to wait longer.
const maxPause = time.Hour

// pausePolicy stands in the WaitError of a request that is held back.
const pausePolicy = "Retry-After"

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var e Event
	resp, err := t.send(r, &e)
	if err != nil {
		e.Err, e.Reason = err, Failed
		if errors.Is(err, gcra.ErrWouldWait) {
			e.Reason = TooLong
		}
	} else if resp != nil {
		e.Status = resp.StatusCode
	}
	if t.observe != nil {
		t.observe(r, e)
	}
	return resp, err
}

// CloseIdleConnections closes those of Base, if it knows how to.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) send(r *http.Request, e *Event) (*http.Response, error) {
	if r.URL == nil {
		return t.base.RoundTrip(r) // which says what is wrong with it
	}
	deadline := time.Now().Add(t.maxWait)
	for {
		if err := t.ready(r, deadline, e); err != nil {
			if e.Tries == 0 {
				closeBody(r)
				return nil, fmt.Errorf("httpclient: %w", err)
			}
			return nil, fmt.Errorf("httpclient: try %d: %w", e.Tries+1, err)
		}
		out := r
		if e.Tries > 0 {
			var err error
			if out, err = again(r); err != nil {
				return nil, fmt.Errorf("httpclient: try %d: body: %w", e.Tries+1, err)
			}
		}
		e.Tries++
		resp, err := t.base.RoundTrip(out)
		if err != nil || resp == nil {
			return resp, err // to be without both is Base's mistake, and http.Client says so
		}
		wait, refused := refusal(resp)
		if !refused {
			e.Reason = Answered
			return resp, nil
		}
		e.Reason = t.obey(r, resp, wait, deadline, e)
		if e.Reason != "" {
			return resp, nil
		}
	}
}

// obey makes all requests wait that the refusal is for. If this one is to be
// sent again, the response is done with; else it returns the reason why not.
func (t *Transport) obey(r *http.Request, resp *http.Response, wait time.Duration, deadline time.Time, e *Event) Reason {
	said := wait > 0
	if said {
		k := pauseKey{host: hostOf(r)}
		if resp.StatusCode == http.StatusTooManyRequests {
			k.caller = callerOf(r)
		}
		t.pauses.add(k, min(wait, max(maxPause, t.maxWait)))
	} else {
		wait = backoff(e.Tries)
	}
	switch {
	case !replayable(r):
		return NotReplayable
	case e.Tries >= t.maxTries:
		return TooManyTries
	case wait > allowed(r.Context(), deadline):
		return TooLong
	}
	discard(resp.Body)
	if !said {
		_ = sleep(r.Context(), wait, e) // the turn that comes next finds the context's end as well
	}
	return ""
}

// ready returns when the request may be sent.
func (t *Transport) ready(r *http.Request, deadline time.Time, e *Event) error {
	for {
		if err := r.Context().Err(); err != nil {
			return err
		}
		if err := t.pause(r, deadline, e); err != nil {
			return err
		}
		if err := t.turn(r, deadline, e); err != nil {
			return err
		}
		// A turn that came while the server was not to be asked is lost: to use it
		// afterwards would send all those together that were to go one by one.
		if left, _ := t.left(r); left == 0 {
			return nil
		}
	}
}

// left is how long the request is held back, and by how long a pause.
func (t *Transport) left(r *http.Request) (left, length time.Duration) {
	if t.pauses.none() {
		return 0, 0
	}
	host := hostOf(r)
	return t.pauses.left(pauseKey{host: host}, pauseKey{host, callerOf(r)})
}

// pause waits for as long as the server has asked to be left alone.
func (t *Transport) pause(r *http.Request, deadline time.Time, e *Event) error {
	for {
		left, length := t.left(r)
		if left == 0 {
			return nil
		}
		patience := allowed(r.Context(), deadline)
		if left > patience {
			return fmt.Errorf("held back: %w", &gcra.WaitError{Subject: "host:" + hostOf(r), Policy: pausePolicy, Needed: left, Allowed: patience})
		}
		if err := sleep(r.Context(), min(left+spread(length), patience), e); err != nil {
			return fmt.Errorf("held back: %w", err)
		}
	}
}

// turn charges the policies and waits for the slot.
func (t *Transport) turn(r *http.Request, deadline time.Time, e *Event) error {
	if len(t.policies) == 0 {
		return nil
	}
	within := max(time.Until(deadline), 1) // 0 would be no bound
	charges := make([]gcra.Charge, len(t.policies))
	for i, p := range t.policies {
		subject, err := p.Key(r)
		if err != nil {
			return fmt.Errorf("policy %q: %w", p.Name, err)
		}
		cost := 1
		if p.Cost != nil {
			cost = p.Cost(r)
		}
		if cost < 0 {
			return fmt.Errorf("policy %q: cost of the request is %d; want 0 or more", p.Name, cost)
		}
		charges[i] = gcra.Charge{Subject: subject, Policy: p.Name, Limit: p.Limit, Cost: int64(cost), MaxDelay: p.MaxDelay, MaxWait: within}
	}
	began := time.Now()
	err := gcra.Wait(r.Context(), t.store, charges...)
	e.Waited += time.Since(began)
	if err != nil {
		return fmt.Errorf("no turn: %w", err)
	}
	return nil
}

// allowed is how long a wait may take.
func allowed(ctx context.Context, deadline time.Time) time.Duration {
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	return max(time.Until(deadline), 0)
}

// sleep waits unless the context ends first.
func sleep(ctx context.Context, d time.Duration, e *Event) error {
	began := time.Now()
	timer := time.NewTimer(d)
	defer timer.Stop()
	defer func() { e.Waited += time.Since(began) }()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeBody is what a RoundTripper does with the body of a request that it does
// not send.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // there is nobody to tell
	}
}
