package httpclient

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/retryafter"
)

// Adaptive is an http.RoundTripper that reads from each response how much of the server's limit
// remains, and paces the next requests. Clients that know nothing of each other then share the limit
// evenly and hardly ever get a 429. It needs no store. The zero value is ready to use:
//
//	client := &http.Client{Transport: &httpclient.Adaptive{}}
//
// It reads the RateLimit fields of drafts 3 to 11, X-RateLimit-*, and denials as a [Transport] does.
// Any part of them is enough; malformed fields are ignored. Requests to a server that sends none of them and denies nothing are not delayed. Adaptive
// returns a denial and does not send the request again: as Base of a [Transport], it paces and the
// Transport repeats.
//
// # Algorithm
//
// Every client leaves a reserve of 32 units in the bucket, or a quarter of a bucket smaller than 128,
// or 8 units if the capacity is unknown. Pacing begins when a response shows less than 8, or less than
// 2 for each client that seems to use the limit, or with a denial; before that a full bucket is used
// as fast as the caller likes. The first share is that of the clients seen, or half. Then requests leave
// one by one at the rate
//
//	share · rate · exp((remaining - reserve) / (1.2·reserve))
//
// rate is the server's, or one a second if it does not say. The exponential acts at once: all
// clients see the same remaining, so all slow down together while it shrinks, and use together what
// accumulates in a pause. The share of a client is learned by additive increase and multiplicative
// decrease (AIMD). A response with less than the reserve, unless it has more than the one before,
// takes up to 2 % of the share, and a denial 20 %, or more if it follows another. A second with more
// than the reserve adds up to 0.3 % of the rate, and less to a rate below one a second. The time between
// two requests is at most that of 256 clients at the server's rate, and a minute at an unknown rate.
//
// It settles where remaining stays at the reserve and the exponential is 1: with too many requests
// remaining falls, with too few it rises, and both are turned around. Shares become equal: a client
// with a large share gets more responses and so decreases it more often, while the increase goes by
// time and only by the root of the share. The reserve then keeps chance from emptying the bucket.
//
// A fixed window, in which the whole limit returns at once, is known by a reset that stays while
// remaining falls. Clients then use the window evenly, and when nothing remains they wait for the
// reset.
//
// A denial outranks a remaining that contradicts it, such as that of a daily limit beside a limit per
// second. It lowers a rate that denials alone determine: by up to 15 %, and by half while most
// requests are denied. Each answer raises it again, by 0.3 % at one request a second. The slower of
// both rates counts. The same rate paces requests to a server that sends no fields.
//
// Ten callers in two processes on an empty bucket of 4,500 an hour get 0.45 % denials, which are
// their ten first requests (examples/simulate compares that with other strategies, there and, with
// -worlds, in 54 worlds).
//
// # Limitations
//
// A bucket of one or two units shows nothing before it denies, and a server without fields never does.
// There clients learn from denials alone, and do not share evenly; one may get hardly anything. Of a
// hundred clients one gets three to five times as much as another. A sliding window, which counts the
// requests of the last period, is used to about 92 %. With RateLimit-Remaining alone a small bucket looks like a large
// one that is almost empty: clients leave up to half of the limit unused until their shares have
// changed by a factor of two and remaining has not.
//
// With GitHub, a 403 with nothing remaining counts as a denial even if it was for another reason.
//
// The fields must not be changed after first use.
type Adaptive struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Key says which limit applies to a request; nil means [ByHost]. On an error the
	// request is not sent.
	Key func(*http.Request) (string, error)

	// MaxWait is how long after the call of RoundTrip the request may be sent; 0 means
	// a minute, and under a Transport what is left of its MaxWait. A request that would
	// have to wait longer fails at once. A deadline of the request's context counts too.
	MaxWait time.Duration

	// Observe, if set, is called once for each RoundTrip, before it returns. It must
	// not block or change the request.
	Observe func(*http.Request, Event)

	pacers pacers
}

// RoundTrip implements http.RoundTripper. If the context ends before the request
// is sent, it returns the context's error. If the wait would exceed MaxWait or the
// context's deadline, it returns at once with an error that wraps a [*gcra.WaitError].
func (a *Adaptive) RoundTrip(r *http.Request) (*http.Response, error) {
	var e Event
	resp, denied, err := a.send(r, &e)
	if a.Observe != nil {
		e.Reason, e.Err = Answered, err
		switch {
		case errors.Is(err, gcra.ErrWouldWait):
			e.Reason = TooLong
		case err != nil:
			e.Reason = Failed
		case denied:
			e.Reason = TooManyTries
		}
		if err == nil {
			e.Status = resp.StatusCode
		}
		a.Observe(r, e)
	}
	return resp, err
}

func (a *Adaptive) send(r *http.Request, e *Event) (resp *http.Response, denied bool, err error) {
	key := a.Key
	if key == nil {
		key = ByHost
	}
	name, err := key(r)
	if err != nil {
		closeBody(r)
		return nil, false, err
	}
	deadline, ok := r.Context().Value(deadlineKey{}).(time.Time)
	if !ok {
		deadline = time.Now().Add(cmp.Or(a.MaxWait, defaultWait))
	} else if own := time.Now().Add(a.MaxWait); a.MaxWait > 0 && own.Before(deadline) {
		deadline = own
	}
	p := a.pacers.get(name)
	if err := waitForPace(p, r, deadline, e); err != nil {
		closeBody(r)
		if errors.Is(err, gcra.ErrWouldWait) {
			err = fmt.Errorf("httpclient: %w", err)
		}
		return nil, false, err
	}
	e.Tries = 1
	resp, err = a.base().RoundTrip(r)
	if err != nil {
		p.Done(time.Now(), 0, nil)
		return nil, false, err
	}
	now := time.Now()
	answer := retryafter.Read(now, resp.StatusCode, resp.Header)
	p.Answered(now, resp.StatusCode, answer)
	return resp, answer.Denied, nil
}

// CloseIdleConnections closes the idle connections of Base, if it can.
func (a *Adaptive) CloseIdleConnections() { closeIdle(a.base()) }

func (a *Adaptive) base() http.RoundTripper {
	if a.Base == nil {
		return http.DefaultTransport
	}
	return a.Base
}
