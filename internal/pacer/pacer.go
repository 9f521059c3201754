// Package pacer paces the requests of a client by the RateLimit fields of the
// answers. It is httpclient.Adaptive without network and clock; the algorithm is
// described there.
package pacer

import (
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// The constants of the algorithm.
const (
	// reserveMost is the reserve of a large bucket: about as many requests as a
	// handful of clients have under way, none of which has heard of the others'.
	reserveMost = 8.0
	// reservePart of a small bucket is its reserve: so much is never idle.
	reservePart = 0.25
	// leanOver is over how many reserves the pace changes by a factor of e. Over
	// less it would swing, as an answer is some requests late; over more the share
	// would have to do the work, which learns slowly.
	leanOver = 1.2
	// yielding is the part of its share that a client gives up with an answer that
	// finds nothing left: some tens of them halve it, and one means little.
	yielding = 0.02
	// ceding is the same for a refusal, once for all that were under way.
	ceding = 0.2
	// growing is how much a share grows in a second in which twice the reserve is
	// left: a client takes over within minutes what another has left behind, and
	// the shares move more slowly than the exponent, which keeps them steady.
	growing = 0.003
	// growthMost bounds what one answer adds, however long ago the last one was.
	growthMost = 0.1
	// regrowing is what a pace grows by in a second where refusals are all that the
	// server tells: it doubles in a little more than a minute.
	regrowing = 0.01
	// firstShare of the rate is the first pace: there may be one other client.
	firstShare = 0.5
	// unknownRate stands for a rate that the server does not tell: one a second.
	unknownRate = 1.0
	// slowestGap is the longest that the law makes by itself; only the server may
	// ask for more. So a client that was starved still hears that there is room.
	slowestGap = time.Minute
	// holdMost bounds a Retry-After: after a day the server is asked again, whatever it said.
	holdMost = 24 * time.Hour
	// movedBy is how much a share must have changed while what is left has not,
	// until the bucket counts as full: were there room above, that would show.
	movedBy = 2.0
	// eagerMost bounds how many times as fast a share grows while what is left does
	// not change.
	eagerMost = 10.0
	// shiverPart of a gap is added by chance, so that clients do not march in step.
	shiverPart = 0.1
	// queueMost is how many gaps for each request under way a queue may be long.
	queueMost = 4
	// shareMost bounds a share of a rate that is not known.
	shareMost = 1e9
)

// Pacer paces the requests on one limit of a server. The zero value is ready to
// use. It is safe for concurrent use, and none of its methods sleeps.
//
// A request is one Next, sleeping until Again returns 0, and one Done:
//
//	for d := pacer.Next(time.Now()); d > 0; d = pacer.Again(time.Now()) {
//		time.Sleep(d)
//	}
//	resp, err := client.Do(req)
//	pacer.Done(time.Now(), resp.StatusCode, resp.Header) // 0 and nil if err != nil
type Pacer struct {
	// Start is how long a request sleeps that comes before the first answer; 0 is
	// not at all. Set it before first use.
	Start time.Duration

	// Rand returns numbers from 0 to below 1, for jitter; nil means rand.Float64.
	// Calls of one Pacer never overlap. Set it before first use.
	Rand func() float64

	mu       sync.Mutex
	heard    time.Time // when the last answer came; zero before the first
	paced    bool      // answers have shown that the limit is within reach
	share    float64   // of the rate: what this client takes while the reserve is there
	slot     time.Time // the last that was given away
	sent     time.Time // when the last request left
	hold     time.Time // until then the server wants to hear nothing
	ceded    time.Time // the last slot given away before a refusal cost some share
	underway int       // requests between Next and Done

	policy   string  // which of the server's limits the rest is about
	rate     float64 // units a second, by the server's word; 0 when it does not say
	capacity float64 // units, by the server's word; 0 when it does not say
	told     bool    // left is known
	left     float64 // units
	rises    bool    // it was less in the answer before
	alike    int     // answers in a row that told the same left
	before   float64 // the share when the first of them came
	full     float64 // units that the bucket seems to hold; 0 when unknown

	counted  int       // answers since countedAt
	countAt  time.Time // see pulse
	lastRate float64   // answers a second in the count before
}

// Next gives the next request its turn and returns how long to sleep until it.
func (p *Pacer) Next(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := now
	if p.heard.IsZero() {
		at = at.Add(p.Start)
	}
	if p.hold.After(at) {
		at = p.hold
	}
	if gap := p.gap(); gap > 0 {
		// A queue that is that much longer than those who wait is of a slower pace
		// than today's, or of requests that were given up. It is not cut to what
		// they need: newcomers would overtake them.
		if last := now.Add(time.Duration(queueMost*p.underway) * gap); p.slot.After(last) && last.After(p.hold) {
			p.slot = last
		}
		chance := rand.Float64
		if p.Rand != nil {
			chance = p.Rand
		}
		gap += time.Duration(float64(gap) * shiverPart * chance())
		if p.slot.Add(gap).After(at) {
			at = p.slot.Add(gap)
		}
	}
	if at.After(p.slot) {
		p.slot = at
	}
	p.underway++
	if at.Equal(now) {
		p.sent = now
	}
	return at.Sub(now)
}

// Again returns how much longer a request is to sleep that has slept: things may
// have changed since. With 0 it leaves.
func (p *Pacer) Again(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold.After(now) {
		return p.hold.Sub(now)
	}
	gap := p.gap()
	due := p.sent.Add(gap)
	early := gap / 2 // chance alone may bring two closer than their slots
	if p.reserve() == 0 {
		early = 0 // and where there is no reserve that is refused
	}
	if due.Add(-early).After(now) {
		return due.Sub(now)
	}
	p.sent = now
	return 0
}

// Done tells what came of a request that had its Next: status and header of the
// response, or 0 and nil if there was none.
func (p *Pacer) Done(now time.Time, status int, header http.Header) {
	f := readFields(now, status, header)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underway = max(p.underway-1, 0)
	if status == 0 {
		return
	}
	since := 0.0
	if !p.heard.IsZero() {
		since = max(now.Sub(p.heard).Seconds(), 0)
	}
	p.heard = now
	if until := now.Add(min(f.retryAfter, holdMost)); f.retryAfter > 0 && until.After(p.hold) {
		p.hold = until
	}
	pulse := p.pulse(now)
	p.learn(f)
	if status == http.StatusTooManyRequests {
		p.refused(now, pulse)
		return
	}
	p.passed(since)
}

// pulse counts an answer and returns how many came a second of late.
func (p *Pacer) pulse(now time.Time) float64 {
	const window = 10 // seconds
	p.counted++
	elapsed := now.Sub(p.countAt).Seconds()
	rate := float64(p.counted) / max(elapsed, 1)
	if elapsed > window || p.countAt.IsZero() {
		p.lastRate, p.counted, p.countAt = rate, 0, now
	}
	return max(rate, p.lastRate)
}

// learn takes down what an answer says of the limit.
func (p *Pacer) learn(f fields) {
	if f.left < 0 {
		return
	}
	if f.policy != p.policy {
		p.policy, p.rate, p.capacity, p.full, p.told = f.policy, 0, 0, 0, false
	}
	if f.capacity > 0 {
		p.capacity = f.capacity
	}
	switch {
	case f.rate <= 0:
	case !f.derived:
		p.rate = f.rate
	default:
		// Whole seconds are rounded up: the largest is closest to the truth.
		p.rate = max(p.rate, f.rate)
	}
	p.rises = p.told && f.left > p.left
	if p.told && p.paced && f.left == p.left {
		p.alike++
	} else {
		p.alike, p.before = 0, p.share
	}
	p.told, p.left = true, f.left
	if p.alike > 0 && (p.share > p.before*movedBy || p.share < p.before/movedBy) {
		p.full = p.left + 1
	} else if p.left >= p.full {
		p.full = 0
	}
	p.setShare(p.share)
}

// refused is Done's part for 429.
func (p *Pacer) refused(now time.Time, pulse float64) {
	p.full = 0
	switch {
	case !p.paced && !p.told:
		p.paced = true
		p.setShare(max(pulse, unknownRate) * firstShare)
	case !p.paced:
		p.pace()
	case now.After(p.ceded):
		p.setShare(p.share * (1 - ceding))
	default:
		return
	}
	p.ceded = now
	if p.slot.After(now) {
		p.ceded = p.slot
	}
}

// passed is Done's part for all else, since seconds after the answer before.
func (p *Pacer) passed(since float64) {
	reserve := p.reserve()
	switch {
	case !p.paced:
		if p.told && p.left-float64(p.underway) < max(reserve, 1) {
			p.pace()
		}
		return
	case !p.told:
		p.setShare(p.share * (1 + min(regrowing*since, growthMost)))
		return
	}
	excess := firstShare // a bucket too small for a reserve: go on slowly
	if reserve > 0 {
		excess = min((p.left-reserve)/reserve, 1)
	}
	switch {
	case excess >= 0:
		times := min(float64(1+p.alike), eagerMost)
		p.setShare(p.share + min(growing*excess*since*times, growthMost)*math.Sqrt(p.share))
	case !p.rises:
		p.setShare(p.share * (1 + yielding*excess))
	}
}

// pace begins to pace.
func (p *Pacer) pace() {
	p.paced = true
	p.setShare(firstShare / p.lean())
}

// setShare keeps the share within bounds.
func (p *Pacer) setShare(share float64) {
	rate, most := unknownRate, shareMost
	if p.rate > 0 {
		rate, most = p.rate, 1
	}
	least := min(1/(rate*slowestGap.Seconds()), firstShare)
	p.share = min(max(share, least), most)
}

// reserve is what clients are to leave in the bucket; 0 when it is too small.
func (p *Pacer) reserve() float64 {
	reserve := reserveMost
	if p.capacity > 0 {
		reserve = min(reserve, p.capacity*reservePart)
	}
	if p.full > 0 { // half of it, as others may not know
		reserve = min(reserve, p.full/2)
	}
	if reserve < 1 {
		return 0
	}
	return reserve
}

// lean is how many times the share what is left allows.
func (p *Pacer) lean() float64 {
	reserve := p.reserve()
	if reserve == 0 || !p.told {
		return 1
	}
	return math.Exp((p.left - reserve) / (leanOver * reserve))
}

// gap is the time from one request to the next.
func (p *Pacer) gap() time.Duration {
	if !p.paced {
		return 0
	}
	pace := p.share * unknownRate
	if p.rate > 0 {
		pace = p.share * p.rate
	}
	return time.Duration(min(1/(pace*p.lean()), slowestGap.Seconds()) * float64(time.Second))
}
