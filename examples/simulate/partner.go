package main

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// partner is a server of a world: one limit, in one of three kinds of window, and a form of header
// fields. It is not our middleware, so that it can do what others do.
type partner struct {
	*world
	tat   time.Time   // gcra: when the bucket is full
	start time.Time   // fixed: of the window
	used  int64       // fixed: in the window
	log   []time.Time // strict: of the allowed requests in the last period
	part  float64     // of the limit that this one of several server processes has
}

func newPartner(w *world, start time.Time) *partner {
	p := &partner{world: w, start: start, part: 1 / float64(max(w.servers, 1))}
	if w.empty {
		p.tat = start.Add(time.Duration(float64(w.interval(0)) / p.part * float64(p.burst())))
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

// answer is the response to a request.
func (p *partner) answer(now time.Time, since time.Duration) answer {
	ok, remaining, reset, wait := p.take(now, since)
	a := answer{denied: !ok, status: http.StatusOK, header: http.Header{}}
	h := a.header
	if !ok {
		a.status = http.StatusTooManyRequests
		if !p.bare {
			h.Set("Retry-After", ceil(wait))
		}
		if p.fields != "draft11" {
			reset = wait // of a denial
		}
	}
	limit, per, quota := p.capacity(), p.limit.Per, p.limit.Count
	switch p.lie {
	case "4000":
		limit, quota, per, remaining, reset = 5000, 5000, time.Hour, 4000, time.Hour
	case "day":
		limit, quota, per, remaining, reset = 100_000, 100_000, 24*time.Hour, 90_000-int64(since.Seconds()), 12*time.Hour
	}
	a.remaining = remaining
	policy := fmt.Sprintf("%d;w=%s", quota, ceil(per))
	left := strconv.FormatInt(remaining, 10)
	switch p.fields {
	case "draft6":
		h.Set("RateLimit-Limit", strconv.FormatInt(limit, 10))
		h.Set("RateLimit-Remaining", left)
		h.Set("RateLimit-Reset", ceil(reset))
		h.Set("RateLimit-Policy", policy)
	case "draft7":
		h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%s, reset=%s", limit, left, ceil(reset)))
		h.Set("RateLimit-Policy", policy)
	case "draft11":
		h.Set("RateLimit", fmt.Sprintf(`"main";r=%s;t=%s`, left, ceil(reset)))
		h.Set("RateLimit-Policy", fmt.Sprintf(`"main";q=%d;w=%s`, limit, ceil(per*time.Duration(limit)/time.Duration(quota))))
	case "x":
		h.Set("X-RateLimit-Limit", strconv.FormatInt(limit, 10))
		h.Set("X-RateLimit-Remaining", left)
		h.Set("X-RateLimit-Reset", ceil(reset))
		if p.window == "fixed" { // a Unix time, as GitHub sends it
			h.Set("X-RateLimit-Reset", strconv.FormatInt(now.Add(reset+time.Second-1).Unix(), 10))
		}
	}
	return a
}

// ceil returns seconds, rounded up.
func ceil(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
