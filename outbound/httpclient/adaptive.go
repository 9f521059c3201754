package httpclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/internal/retryafter"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// Adaptive is an http.RoundTripper that learns from the responses how much the server allows, and
// paces the next requests, without a store. Clients that know nothing of each other then share the
// limit with few denials. The zero value is ready to use:
//
//	client := &http.Client{Transport: &httpclient.Adaptive{}}
//
// It reads limits of requests, not of bytes or tokens: the RateLimit fields of drafts 3 to 11,
// X-RateLimit-Remaining with its limit and reset, and fields of Twitter, Zendesk, Shopify and OpenAI. It
// reads denials as a [Transport] does. A remaining alone is enough; malformed values are ignored. It does
// not delay requests to a server that sends none of them and denies nothing. Adaptive returns a denial and
// does not send the request again: as Base of a [Transport], it paces and the Transport repeats.
//
// # Algorithm
//
// What the server tells is obeyed: no request is sent before a Retry-After, or a reset in its place, for
// at most a day. What remains is spread over the time until the reset, and of a bucket a reserve is kept.
// A limit that no field describes is learned from its denials: the pace falls to what was allowed,
// and grows until the next. Limits that the server tells apart, by resource or policy, are paced apart: a
// request waits for those that the last answer to its Key, method and first path segment named.
//
// A 503, a time-out or another error of Base is no denial. It holds all requests with this Key back: for
// its Retry-After, or else one at a time asks, at growing intervals of up to ten minutes. It changes no pace.
// A 503 with fields that say that nothing remains is a denial. Fields of a response that a cache has
// kept, with an Age or a Date that is half a minute old, are not obeyed.
//
// # When not to use it
//
// If you know the limit, configure it in a [Transport], and share it in a store: above all where the server
// blocks its clients after a denial, where its bucket has few units, or where clients must be served
// equally and no field tells what remains. Clients with few requests in a window learn slowly.
//
// A 403 with nothing remaining counts as a denial even if it was for another reason.
//
// The fields must not be changed after first use.
type Adaptive struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Key says which limit applies to a request; nil means [ByHost]. On an error the
	// request is not sent.
	Key func(*http.Request) (string, error)

	// MaxWait is how long after the call of RoundTrip the request may be sent; 0 means
	// a minute, and as Base of a Transport or Adaptive what is left of its MaxWait. A
	// request that would have to wait longer fails, usually at once. A deadline of the
	// request's context counts too. A negative MaxWait is an error. A Transport as Base
	// waits by its own MaxWait, from when it gets the request.
	MaxWait time.Duration

	// Denied is as in [Config]; nil means that of the Transport or Adaptive whose Base it is.
	Denied func(resp *http.Response, told Denial) Denial

	// Observe, if set, is called before RoundTrip returns. It must not block or change the
	// request.
	Observe func(*http.Request, Event)

	pacers pacers
}

// RoundTrip implements http.RoundTripper. If the context ends while the request waits, it
// returns the context's error; if the wait would exceed MaxWait or the context's deadline,
// an error that wraps a [*turns.WaitError], usually at once.
func (a *Adaptive) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, _, err := a.roundTrip(r, time.Now().Add(cmp.Or(a.MaxWait, defaultWait)), nil)
	return resp, err
}

// roundTrip is RoundTrip for a Transport or an Adaptive above, with its deadline and its Denied. It also returns what the response
// says. A deadline of the context would also end the reading of the body.
func (a *Adaptive) roundTrip(r *http.Request, deadline time.Time, denied func(*http.Response, Denial) Denial) (*http.Response, retryafter.Answer, error) {
	if own := time.Now().Add(a.MaxWait); a.MaxWait > 0 && own.Before(deadline) {
		deadline = own
	}
	if a.Denied != nil {
		denied = a.Denied
	}

	var e Event
	resp, answer, err := a.send(r, deadline, denied, &e)
	if e.Tries == 0 && r.URL != nil {
		closeBody(r)
	}
	e.pass(a.Observe, r, resp, err)
	return resp, answer, err
}

// check returns the mistake in the fields: New has it for a Transport, and every RoundTrip for others.
func (a *Adaptive) check() error {
	if a.MaxWait < 0 {
		return fmt.Errorf("httpclient: Adaptive.MaxWait is %v; want more than 0, or 0 for %v", a.MaxWait, defaultWait)
	}
	return nil
}

func (a *Adaptive) send(r *http.Request, deadline time.Time, denied func(*http.Response, Denial) Denial, e *Event) (resp *http.Response, answer retryafter.Answer, err error) {
	if r.URL == nil {
		resp, err = a.base().RoundTrip(r) // which returns the error
		return resp, answer, err
	}
	if err := a.check(); err != nil {
		return nil, answer, err
	}

	key := a.Key
	if key == nil {
		key = ByHost
	}
	name, err := key(r)
	if err != nil {
		return nil, answer, err
	}

	p, route := a.pacers.get(name), routeOf(r)
	if err := waitForPace(p, r, route, deadline, e); err != nil {
		if errors.Is(err, turns.ErrWouldWait) {
			err = fmt.Errorf("httpclient: %w", err)
		}
		return nil, answer, err
	}

	e.Tries = 1
	if below, ok := a.Base.(*Adaptive); ok {
		resp, _, err = below.roundTrip(r, deadline, denied)
	} else {
		resp, err = a.base().RoundTrip(r)
	}
	now := time.Now()
	if err != nil || resp == nil {
		if errors.Is(err, context.Canceled) {
			p.Over()
		} else {
			p.Failed(now, 0)
		}
		return resp, answer, err // http.Client reports a Base that returns neither
	}

	answer = readAnswer(now, resp, denied)
	if e.Reason = Answered; answer.Later {
		e.Reason = TooManyTries
	}

	switch {
	case answer.Never: // it says nothing of the rate
		p.Over()
	case answer.Down:
		p.Failed(now, answer.Wait)
	default:
		p.Answered(now, route, answer)
	}
	return resp, answer, nil
}

// CloseIdleConnections closes the idle connections of Base, if it can.
func (a *Adaptive) CloseIdleConnections() { closeIdle(a.base()) }

func (a *Adaptive) base() http.RoundTripper { return cmp.Or(a.Base, http.DefaultTransport) }
