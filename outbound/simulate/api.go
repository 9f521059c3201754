package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// meter counts by one limit. Times are since the start of the run.
type meter struct {
	drawn
	last time.Duration // bucket: of tokens; fixed: the beginning of the window

	tokens float64 // bucket
	used   int64   // fixed and sliding
	log    []entry // sliding: the charges of the last window
}

type entry struct {
	at   time.Duration
	cost int64
}

// look brings the meter to a time at which the limit gives a factor of its units, and returns the units that
// remain and how many there are at most.
func (m *meter) look(at time.Duration, factor float64) (left, most int64) {
	count := max(int64(math.Round(float64(m.units)*factor)), 1)
	most = min(m.burst, count)
	switch m.kind {
	case "bucket":
		m.tokens = min(m.tokens+(at-m.last).Seconds()*float64(count)/m.window.Seconds(), float64(most))
		m.last = at
		return int64(m.tokens + 1e-9), most

	case "fixed":
		if n := (at - m.last) / m.window; n > 0 {
			m.last, m.used = m.last+n*m.window, 0
		}

	default:
		for len(m.log) > 0 && at-m.log[0].at >= m.window {
			m.used -= m.log[0].cost
			m.log = m.log[1:]
		}
	}
	return max(count-m.used, 0), most
}

// wait is the time until so many units are free, if there are fewer.
func (m *meter) wait(at time.Duration, cost int64, factor float64) time.Duration {
	left, most := m.look(at, factor)
	if cost = min(cost, most); left >= cost {
		return 0
	}

	switch m.kind {
	case "bucket":
		return time.Duration((float64(cost) - m.tokens) * float64(m.window) / max(float64(m.units)*factor, 1))
	case "fixed":
		return m.last + m.window - at
	}

	for _, e := range m.log {
		if left += e.cost; left >= cost {
			return e.at + m.window - at
		}
	}
	return m.window
}

func (m *meter) charge(at time.Duration, cost int64) {
	m.tokens -= float64(cost)
	m.used += cost
	if m.kind == "sliding" {
		m.log = append(m.log, entry{at, cost})
	}
}

// reset is the time until all units are free again; of a sliding window until the first.
func (m *meter) reset(at time.Duration, factor float64) time.Duration {
	switch _, most := m.look(at, factor); {
	case m.kind == "bucket":
		return m.wait(at, most, factor)
	case m.kind == "fixed":
		return m.last + m.window - at
	case len(m.log) > 0:
		return m.log[0].at + m.window - at
	}
	return 0
}

// api is the partner of a draw.
type api struct {
	*draw
	random  *rand.Rand
	meters  []meter
	blocked time.Duration // the end of a block

	stored   http.Header // what the cache has
	storedAt time.Duration
}

func newAPI(d *draw, random *rand.Rand) *api {
	p := &api{draw: d, random: random}
	for _, l := range d.limits {
		p.meters = append(p.meters, meter{drawn: l, tokens: float64(l.burst)})
	}
	return p
}

// reply is the response to a request.
type reply struct {
	answer
	cached bool
}

var epoch = time.Unix(origin, 0)

// date is a time by the partner's clock.
func (p *api) date(at time.Duration) time.Time { return epoch.Add(at + p.skew).UTC() }

// answer answers a request.
func (p *api) answer(at time.Duration) reply {
	if p.cached && p.stored != nil && p.random.Float64() < cacheTakes && at-p.storedAt < cacheKeeps {
		h := p.stored.Clone()
		if p.aged {
			h.Set("Age", strconv.FormatInt(int64((at-p.storedAt)/time.Second)+1, 10))
		}
		return reply{answer{status: http.StatusOK, header: h, remaining: p.left(at)}, true}
	}

	h := http.Header{"Date": {p.date(at).Format(http.TimeFormat)}}
	if p.out > 0 && at%p.every < p.out {
		if p.outAfter {
			h.Set("Retry-After", p.seconds(p.out-at%p.every))
		}
		return reply{answer: answer{denied: true, status: http.StatusServiceUnavailable, header: h, remaining: p.left(at)}}
	}

	factor := p.factor(at)
	cost := 1 + p.random.Int64N(p.dearest)
	wait := p.blocked - at
	if wait <= 0 {
		wait = 0
		for i := range p.meters {
			wait = max(wait, p.meters[i].wait(at, cost, factor))
		}
		if wait > 0 && p.block > 0 {
			wait = max(wait, p.block)
			p.blocked = at + p.block
		}
	}

	if wait > 0 {
		if p.after {
			h.Set("Retry-After", p.seconds(wait))
		}
		p.tell(h, at, wait)
		return reply{answer: answer{denied: true, status: http.StatusTooManyRequests, header: h, remaining: p.left(at)}}
	}

	for i := range p.meters {
		_, most := p.meters[i].look(at, factor)
		p.meters[i].charge(at, min(cost, most))
	}
	p.tell(h, at, 0)
	if at-p.storedAt >= cacheKeeps || p.stored == nil {
		p.stored, p.storedAt = h, at
	}
	return reply{answer: answer{status: http.StatusOK, header: h, remaining: p.left(at)}}
}

// left is what remains of the first limit.
func (p *api) left(at time.Duration) int64 {
	left, _ := p.meters[0].look(at, p.factor(at))
	return left
}

// seconds is a time as it is told: in milliseconds, or rounded up to seconds.
func (p *api) seconds(d time.Duration) string {
	if p.exact {
		return strconv.FormatFloat(d.Seconds()+0.0005, 'f', 3, 64)
	}
	return ceil(d)
}

// tell sets the fields of a response; denied is the wait of a denial.
func (p *api) tell(h http.Header, at, denied time.Duration) {
	switch p.form {
	case "none":
	case "draft11":
		for i := range p.meters {
			p.tellList(h, &p.meters[i], i, at)
		}
	default:
		m := &p.meters[0]
		if p.second {
			m = &p.meters[len(p.meters)-1]
		}
		p.tellThree(h, m, at, denied)
	}
}

// tellList adds a limit to the fields of draft 11: t is the time until more remains than r says.
func (p *api) tellList(h http.Header, m *meter, i int, at time.Duration) {
	factor := p.factor(at)
	left, most := m.look(at, factor)
	window := m.window
	if m.kind == "bucket" {
		window = time.Duration(float64(window) * float64(most) / max(float64(m.units)*factor, 1))
	}
	reset := m.wait(at, left+1, factor)
	if m.kind != "bucket" {
		reset = m.reset(at, factor)
	}
	h["Ratelimit"] = append(h["Ratelimit"], fmt.Sprintf(`"%d";r=%d;t=%s`, i, left, p.seconds(reset)))
	h["Ratelimit-Policy"] = append(h["Ratelimit-Policy"], fmt.Sprintf(`"%d";q=%d;w=%s`, i, most, p.seconds(window)))
}

// tellThree sets a limit, what remains, and the reset, which in a denial is its wait if this limit denies.
func (p *api) tellThree(h http.Header, m *meter, at, denied time.Duration) {
	factor := p.factor(at)
	left, most := m.look(at, factor)
	reset := m.reset(at, factor)
	if denied > 0 && left == 0 && m.kind == "bucket" {
		reset = denied
	}

	all, remaining, in := strconv.FormatInt(most, 10), strconv.FormatInt(left, 10), p.seconds(reset)
	end := p.date(at).Add(reset)
	unix := strconv.FormatInt(end.Add(time.Second-1).Unix(), 10)
	if p.exact {
		unix = strconv.FormatFloat(float64(end.UnixMilli()+1)/1000, 'f', 3, 64)
	}
	set := func(name, limit, left, reset string, value string) {
		h[name+limit], h[name+left], h[name+reset] = []string{all}, []string{remaining}, []string{value}
	}

	switch p.form {
	case "draft6":
		set("Ratelimit-", "Limit", "Remaining", "Reset", in)
		h["Ratelimit-Policy"] = []string{fmt.Sprintf("%d;w=%s", max(int64(math.Round(float64(m.units)*factor)), 1), p.seconds(m.window))}
	case "seconds":
		set("X-Ratelimit-", "Limit", "Remaining", "Reset", in)
	case "unix":
		set("X-Ratelimit-", "Limit", "Remaining", "Reset", unix)
	case "iso":
		set("X-Ratelimit-", "Limit", "Remaining", "Reset", end.Add(time.Second-1).Truncate(time.Second).Format(time.RFC3339))
	case "date":
		set("X-Ratelimit-", "Limit", "Remaining", "Reset", end.Add(time.Second-1).Format(time.RFC1123))

	// Forms of one API.
	case "discord":
		set("X-Ratelimit-", "Limit", "Remaining", "Reset-After", strconv.FormatFloat(reset.Seconds()+0.0005, 'f', 3, 64))
	case "twitter":
		set("X-Rate-Limit-", "Limit", "Remaining", "Reset", unix)
	case "openai":
		set("X-Ratelimit-", "Limit-Requests", "Remaining-Requests", "Reset-Requests", reset.Round(time.Millisecond).String())
	case "reddit":
		h["X-Ratelimit-Used"] = []string{strconv.FormatInt(most-left, 10)}
		h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"] = []string{remaining + ".0"}, []string{in}
	case "shopify":
		h["X-Shopify-Shop-Api-Call-Limit"] = []string{fmt.Sprintf("%d/%d", most-left, most)}
	case "zendesk":
		h["X-Rate-Limit"], h["X-Rate-Limit-Remaining"] = []string{all}, []string{remaining}
	}
}
