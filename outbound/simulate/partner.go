package main

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// partner is a server of a world: a limit, in one of three kinds of window, and a form of header
// fields. It is not our middleware, so that it can do what others do.
type partner struct {
	*world
	tat   time.Time   // gcra: when the bucket is full
	start time.Time   // fixed: of the window
	used  int64       // fixed: in the window
	log   []time.Time // strict: of the allowed requests in the last period
	part  float64     // of the limit that this one of several server processes has

	other *partner // of the second limit; nil without one

	blocked time.Time // the end of a block
}

func newPartner(w *world, start time.Time) *partner {
	p := &partner{world: w, start: start, part: 1 / float64(max(w.servers, 1))}
	if w.empty {
		p.tat = start.Add(time.Duration(float64(w.interval(0)) / p.part * float64(p.burst())))
	}
	if w.second != (gcra.Limit{}) {
		p.other = newPartner(&world{limit: w.second, window: "fixed"}, start)
	}
	return p
}

func (p *partner) count(since time.Duration) int64 {
	return max(int64(math.Round(float64(p.limit.Count)*p.part*p.factor(since))), 1)
}

func (p *partner) burst() int64 {
	return max(int64(math.Round(float64(p.capacity())*p.part)), 1)
}

// take charges a request. reset is the time until the bucket is full or the window ends, wait the time
// until the next request passes.
func (p *partner) take(now time.Time, since time.Duration) (ok bool, remaining int64, reset, wait time.Duration) {
	if p.restart && now.Sub(p.start) >= restartAfter {
		p.start, p.tat = now, time.Time{}
	}

	switch p.window {
	case "fixed":
		if n := now.Sub(p.start) / p.limit.Per; n > 0 {
			p.start, p.used = p.start.Add(n*p.limit.Per), 0
		}
		reset = p.start.Add(p.limit.Per).Sub(now)
		if p.used >= p.count(since) {
			return false, 0, reset, reset
		}
		p.used++
		return true, p.count(since) - p.used, reset, 0

	case "strict":
		for len(p.log) > 0 && now.Sub(p.log[0]) >= p.limit.Per {
			p.log = p.log[1:]
		}
		n := int64(len(p.log))
		if n >= p.count(since) {
			wait = p.log[0].Add(p.limit.Per).Sub(now)
			return false, 0, wait, wait
		}
		p.log = append(p.log, now)
		return true, p.count(since) - n - 1, p.log[0].Add(p.limit.Per).Sub(now), 0

	default:
		interval := time.Duration(float64(p.interval(since)) / p.part)
		tat := p.tat
		if tat.Before(now) {
			tat = now
		}
		full := interval * time.Duration(p.burst())
		if next := tat.Add(interval); next.Sub(now) <= full {
			p.tat = next
			return true, int64((full - next.Sub(now)) / interval), next.Sub(now), 0
		}
		return false, 0, tat.Sub(now), tat.Add(interval).Sub(now) - full
	}
}

const (
	restartAfter = 10 * time.Minute // the bucket is full again
	outageEvery  = 5 * time.Minute  // for outageTakes, with 503 and Retry-After
	outageTakes  = 30 * time.Second
	skew         = 10 * time.Minute // of the server's clock; the responses have its Date
)

// answer is the response to a request.
func (p *partner) answer(now time.Time, since time.Duration) answer {
	if left := outageTakes - since%outageEvery; p.outage && left > 0 {
		return answer{denied: true, status: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {ceil(left)}}}
	}

	if left := p.blocked.Sub(now); left > 0 {
		return p.denial(now, since, 0, left, left)
	}

	if p.other != nil {
		if ok, _, _, wait := p.other.take(now, since); !ok {
			_, remaining, reset, _ := p.peek(now, since)
			return p.denial(now, since, remaining, reset, wait)
		}
	}

	ok, remaining, reset, wait := p.take(now, since)
	if !ok {
		if p.other != nil {
			p.other.used-- // all limits or none
		}
		if p.block > 0 {
			p.blocked, wait, reset = now.Add(p.block), p.block, p.block
		}
		if p.fields != "draft11" {
			reset = wait // of a denial
		}
		return p.denial(now, since, 0, reset, wait)
	}

	a := answer{status: http.StatusOK, remaining: remaining, header: http.Header{}}
	p.write(a.header, now, since, remaining, reset)
	return a
}

// peek is take without a charge.
func (p *partner) peek(now time.Time, since time.Duration) (ok bool, remaining int64, reset, wait time.Duration) {
	copied := *p
	return copied.take(now, since)
}

func (p *partner) denial(now time.Time, since time.Duration, remaining int64, reset, wait time.Duration) answer {
	a := answer{denied: true, status: http.StatusTooManyRequests, remaining: remaining, header: http.Header{}}
	switch {
	case p.bare:
	case p.fields == "date":
		a.header.Set("Retry-After", now.Add(skew+wait+time.Second-1).UTC().Format(http.TimeFormat))
	case p.fields == "shopify":
		a.header.Set("Retry-After", ceil(wait)+".0")
	default:
		a.header.Set("Retry-After", ceil(wait))
	}
	p.write(a.header, now, since, remaining, reset)
	return a
}

// write sets the fields of a response.
func (p *partner) write(h http.Header, now time.Time, since time.Duration, remaining int64, reset time.Duration) {
	limit, per, quota := p.capacity(), p.limit.Per, p.limit.Count
	switch p.lie {
	case "4000":
		limit, quota, per, remaining, reset = 5000, 5000, time.Hour, 4000, time.Hour
	case "day":
		limit, quota, per, remaining, reset = 100_000, 100_000, 24*time.Hour, 90_000-int64(since.Seconds()), 12*time.Hour
	}

	all, left := strconv.FormatInt(limit, 10), strconv.FormatInt(remaining, 10)
	end := now.Add(reset + time.Second - 1)
	set := func(names [3]string, reset string) {
		h.Set(names[0], all)
		h.Set(names[1], left)
		h.Set(names[2], reset)
	}

	xRateLimit := [3]string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
	switch p.fields {
	case "draft6":
		set([3]string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, ceil(reset))
		h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%s", quota, ceil(per)))
	case "draft7":
		h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%s, reset=%s", limit, left, ceil(reset)))
		h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%s", quota, ceil(per)))
	case "draft11":
		h.Set("RateLimit", fmt.Sprintf(`"main";r=%s;t=%s`, left, ceil(reset)))
		h.Set("RateLimit-Policy", fmt.Sprintf(`"main";q=%d;w=%s`, limit, ceil(per*time.Duration(limit)/time.Duration(quota))))
		if p.other != nil {
			_, remaining, reset, _ := p.other.peek(now, since)
			h.Set("RateLimit", fmt.Sprintf(`%s, "other";r=%d;t=%s`, h.Get("RateLimit"), remaining, ceil(reset)))
			h.Set("RateLimit-Policy", fmt.Sprintf(`%s, "other";q=%d;w=%s`, h.Get("RateLimit-Policy"), p.second.Count, ceil(p.second.Per)))
		}

	case "x":
		set(xRateLimit, ceil(reset))
		if p.window == "fixed" { // a Unix time, as GitHub sends it
			h.Set("X-RateLimit-Reset", strconv.FormatInt(end.Unix(), 10))
		}

	case "gitlab":
		set([3]string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}, strconv.FormatInt(end.Unix(), 10))
	case "twitter":
		set([3]string{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"}, strconv.FormatInt(end.Unix(), 10))
	case "iso": // Vimeo, Atlassian
		set(xRateLimit, end.UTC().Truncate(time.Second).Format(time.RFC3339))
	case "date": // the server's clock is ahead
		set(xRateLimit, end.Add(skew).UTC().Format(http.TimeFormat))
		h.Set("Date", now.Add(skew).UTC().Format(http.TimeFormat))

	case "discord":
		set([3]string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset-After"}, strconv.FormatFloat(reset.Seconds(), 'f', 3, 64))
	case "reddit":
		h.Set("X-RateLimit-Used", strconv.FormatInt(limit-remaining, 10))
		h.Set("X-RateLimit-Remaining", left+".0")
		h.Set("X-RateLimit-Reset", ceil(reset))

	case "openai":
		set([3]string{"X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests"}, reset.Round(time.Millisecond).String())
	case "zendesk":
		h.Set("X-Rate-Limit", all)
		h.Set("X-Rate-Limit-Remaining", left)
	case "shopify":
		h.Set("X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%d/%d", limit-remaining, limit))
	case "remaining":
		h.Set("RateLimit-Remaining", left)
	}
}

// ceil returns seconds, rounded up.
func ceil(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
