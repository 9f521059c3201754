package httpclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/outbound/internal/pacer"
	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// Transport is an http.RoundTripper whose requests wait for their turn and are
// sent again when the server denies them. Build it with [New] and share it: it is
// safe for concurrent use.
//
// # Turns
//
// A request is charged to the policies by [turns.Wait], and sent when its turn has come.
// If that would be after MaxWait, the policy's MaxDelay or the context's deadline,
// RoundTrip returns an error that wraps a [*turns.WaitError], usually at once and with
// nothing charged. If the context ends while a request waits, it is not sent; a turn that
// it has reserved is lost. Each try takes a turn. A redirect that the http.Client follows
// is a request of its own, with a new MaxWait.
//
// # Denials
//
// A denial is a response with status 429; with 403 and a Retry-After; or a 403 or 503 with
// nothing remaining, as GitHub may send. Config.Denied can add others. Another 503 with a
// Retry-After says nothing of a limit, but is treated alike here. The
// request is sent again after the Retry-After, in seconds or as a date, and a
// random part of up to a tenth of it. Without a Retry-After, the reset counts in its place
// unless something remains, in the fields that [Adaptive] reads. Without a time, or if it is
// 0, the wait is up to half a second, and up to twice as long with each further try, ten
// seconds at most; the pace below may add to it.
//
// RoundTrip returns the denial itself, with its body, if the request is not safe to
// repeat, if MaxTries were denied, if the wait that it asks for would exceed MaxWait or
// the context's deadline, or if the denial says that no wait helps, as our middleware, OpenAI
// and Stripe may.
//
// A request is safe to repeat if its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, if
// it has an Idempotency-Key or X-Idempotency-Key header, or if [Config.Replay] says so; and
// if it has no body or a GetBody (see http.NewRequest).
//
// # Pauses
//
// A Retry-After, or a reset in its place, also holds back other requests to that
// host: after a 503 all, after other denials those with the same Authorization header.
// A request that cannot wait for so long is not sent; its error wraps a
// [*turns.WaitError] with the policy "Retry-After". A pause lasts at most an hour, or
// MaxWait if that is longer.
//
// A denial without a time may slow down all requests to that host, to one in about 5
// seconds at the slowest; without further denials they become faster again. A request that
// cannot wait for so long has a WaitError with the policy "pace".
//
// With an [Adaptive] as Base, the Adaptive does this. It also holds back all requests with
// its Key for the time of a denial, but for no more than a day.
//
// The Transport or the Adaptive keeps this in memory, for up to 1024 hosts or keys and 4096
// pauses; beyond that, some end early.
type Transport struct {
	cfg      Config // with its defaults, and limits with the margin
	pauses   pauses
	pacers   pacers    // by host, for servers that deny without a time; on an Adaptive one, which learns nothing
	adaptive *Adaptive // Base if it is one, which then paces
}

// maxPause bounds a pause, unless callers wait longer than that.
const maxPause = time.Hour

// pausePolicy is the policy in the WaitError of a request that is held back.
const pausePolicy = "Retry-After"

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var e Event
	resp, err := t.send(r, &e)
	e.pass(t.cfg.Observe, r, resp, err)
	return resp, err
}

// pass completes the event of a request and gives it to observe.
func (e *Event) pass(observe func(*http.Request, Event), r *http.Request, resp *http.Response, err error) {
	e.Err = err
	switch {
	case errors.Is(err, turns.ErrWouldWait):
		e.Reason = TooLong
	case err != nil || resp == nil:
		e.Reason = Failed
	default:
		e.Status = resp.StatusCode
	}
	if observe != nil {
		observe(r, *e)
	}
}

// CloseIdleConnections closes the idle connections of Base, if it can.
func (t *Transport) CloseIdleConnections() { closeIdle(t.cfg.Base) }

func closeIdle(base http.RoundTripper) {
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) send(r *http.Request, e *Event) (*http.Response, error) {
	if r.URL == nil {
		return t.cfg.Base.RoundTrip(r) // Base returns the error
	}
	deadline := time.Now().Add(t.cfg.MaxWait)

	for {
		p, err := t.wait(r, deadline, e)
		if err != nil {
			if e.Tries == 0 {
				closeBody(r)
				return nil, fmt.Errorf("httpclient: %w", err)
			}
			return nil, fmt.Errorf("httpclient: try %d: %w", e.Tries+1, err)
		}

		out := r
		if e.Tries > 0 {
			if out, err = replay(r); err != nil {
				p.Over()
				return nil, fmt.Errorf("httpclient: try %d: body: %w", e.Tries+1, err)
			}
		}

		e.Tries++
		resp, answer, err := t.try(out, p, deadline)
		if err != nil || resp == nil {
			return resp, err // http.Client reports a Base that returns neither
		}

		if e.Reason = t.handle(r, resp, answer, deadline, e); e.Reason != "" {
			return resp, nil
		}
	}
}

// try sends the request, reads the response, and tells the pacer the status if that says something of the rate.
func (t *Transport) try(r *http.Request, p *pacer.Pacer, deadline time.Time) (resp *http.Response, answer retryafter.Answer, err error) {
	if t.adaptive != nil {
		resp, answer, err = t.adaptive.roundTrip(r, deadline, t.cfg.Denied)
	} else if resp, err = t.cfg.Base.RoundTrip(r); err == nil && resp != nil {
		answer = readAnswer(time.Now(), resp, t.cfg.Denied)
	}

	switch {
	case p == nil:
	case err != nil || resp == nil || answer.Wait > 0 || answer.Never || answer.Down:
		p.Over()
	default:
		p.Answered(time.Now(), "", retryafter.Answer{Denied: answer.Denied, Remaining: -1})
	}
	return resp, answer, err
}

// handle begins a pause if a denial asks for one. If the request is to be sent
// again, it drains the response and returns ""; otherwise it returns the reason
// why not.
func (t *Transport) handle(r *http.Request, resp *http.Response, answer retryafter.Answer, deadline time.Time, e *Event) Reason {
	switch {
	case !answer.Later:
		return Answered
	case answer.Never:
		return TooLong
	}

	wait := cmp.Or(answer.Wait, backoff(e.Tries))
	if answer.Wait > 0 {
		k := pauseKey{host: hostOf(r)}
		if !answer.Down {
			k.caller = callerOf(r)
		}
		t.pauses.add(k, min(wait, max(maxPause, t.cfg.MaxWait)))
	}

	switch {
	case !t.replayable(r):
		return NotReplayable
	case e.Tries >= t.cfg.MaxTries:
		return TooManyTries
	case wait > available(r.Context(), deadline):
		return TooLong
	}

	drain(resp.Body, available(r.Context(), deadline)-wait)
	if answer.Wait == 0 {
		_ = sleep(r.Context(), wait, e) // wait, which comes next, also checks the context
	}
	return ""
}

// wait returns when the request may be sent: no pause holds it back, its pacer lets
// it go, and its turn has come. The pacer wants to know the outcome.
func (t *Transport) wait(r *http.Request, deadline time.Time, e *Event) (*pacer.Pacer, error) {
	for {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}

		if remaining, length := t.pauses.remaining(r); remaining > 0 {
			if err := waitForPause(r, remaining, length, deadline, e); err != nil {
				return nil, fmt.Errorf("held back: %w", err)
			}
			continue // another may have begun
		}

		var p *pacer.Pacer // the Adaptive has its own
		if t.adaptive == nil {
			p = t.pacers.get(hostOf(r))
			if err := waitForPace(p, r, "", deadline, e); err != nil {
				return nil, err
			}
		}

		if err := t.waitForTurn(r, deadline, e); err != nil {
			p.Over()
			return nil, err
		}

		// A turn that came in a pause is lost. Used after it, all such turns would
		// come at once.
		if remaining, _ := t.pauses.remaining(r); remaining == 0 {
			return p, nil
		}
		p.Over()
	}
}

// waitForPause sleeps until the end of a pause, or returns an error if the request cannot wait for so long.
func waitForPause(r *http.Request, remaining, length time.Duration, deadline time.Time, e *Event) error {
	longest := available(r.Context(), deadline)
	if remaining > longest {
		return &turns.WaitError{Subject: "host:" + hostOf(r), Policy: pausePolicy, Needed: remaining, Patience: longest}
	}
	return sleep(r.Context(), min(remaining+spread(length), longest), e)
}

// waitForTurn charges the policies and waits for the turn.
func (t *Transport) waitForTurn(r *http.Request, deadline time.Time, e *Event) error {
	if len(t.cfg.Policies) == 0 {
		return nil
	}

	patience := max(time.Until(deadline), 1) // 0 would be no bound
	charges := make([]gcra.Charge, len(t.cfg.Policies))
	for i, p := range t.cfg.Policies {
		subject, err := p.Key(r)
		if err != nil {
			return fmt.Errorf("policy %q: %w", p.Name, err)
		}

		cost := int64(1)
		if p.Cost != nil {
			cost = p.Cost(r)
		}
		if cost < 0 {
			return fmt.Errorf("policy %q: cost of the request is %d; want 0 or more", p.Name, cost)
		}

		charges[i] = gcra.Charge{Subject: subject, Policy: p.Name, Limit: p.Limit, Cost: cost, Peek: cost == 0, MaxDelay: p.MaxDelay, MaxWait: patience}
	}

	start := time.Now()
	err := turns.Wait(r.Context(), t.cfg.Store, charges...)
	e.Waited += time.Since(start)
	if err != nil {
		return fmt.Errorf("no turn: %w", err)
	}
	return nil
}

// available returns how long a request may still wait.
func available(ctx context.Context, deadline time.Time) time.Duration {
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	return max(time.Until(deadline), 0)
}

// sleep returns the context's error if it ends first.
func sleep(ctx context.Context, d time.Duration, e *Event) error {
	start := time.Now()
	defer func() { e.Waited += time.Since(start) }()
	return await.Sleep(ctx, d)
}

// closeBody closes the body of a request that is not sent, as a RoundTripper must.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}
