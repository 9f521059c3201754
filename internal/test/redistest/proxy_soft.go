package redistest

import (
	"math/rand/v2"
	"time"
)

// Soft faults: Redis answers some of the time, or late. A piece is what one read of the
// proxy returns, which is a whole batch of requests or of replies unless it is large.

// Lose drops pieces of requests and of replies with these probabilities, and forwards
// the others. No connection is reset: the client waits for a reply that never comes.
func (p *Proxy) Lose(requests, replies float64) {
	p.t.Helper()
	p.set(mode{fault: lose, requests: requests, replies: replies})
}

// Resend delays pieces of both directions by d with this probability, as TCP does that
// sends a lost segment again. What follows on the connection waits for it.
func (p *Proxy) Resend(probability float64, d time.Duration) {
	p.t.Helper()
	p.set(mode{fault: resend, requests: probability, replies: probability, delay: d})
}

// DelayBetween is [Proxy.Delay] by another duration for each piece.
func (p *Proxy) DelayBetween(least, most time.Duration) {
	p.t.Helper()
	p.set(mode{fault: delay, delay: least, spread: most - least})
}

// Bandwidth forwards so many bytes a second in each direction of each connection.
func (p *Proxy) Bandwidth(perSecond int) { p.t.Helper(); p.set(mode{fault: bandwidth, n: perSecond}) }

// HalfOpen loses all that is sent on the connections that are open now, as if the other
// side had gone without an RST, and leaves the mode as it is: new connections work.
// The next change of mode resets those that are still there.
func (p *Proxy) HalfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.holed = true
	}
}

// Move sends new connections to another server, as after a change of a name's address,
// and resets those that are open.
func (p *Proxy) Move(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.Reset()
}

func (m mode) loses(share float64) bool { return m.fault == lose && rand.Float64() < share }

// someDelay is the delay of one piece.
func (m mode) someDelay() time.Duration {
	return m.delay + time.Duration(rand.Float64()*float64(m.spread))
}

// due is when a piece of n bytes is forwarded. free is when the line is free for it.
func (m mode) due(n int, share float64, free *time.Time) time.Time {
	now := time.Now()
	switch {
	case m.fault == resend && rand.Float64() < share:
		return now.Add(m.delay)
	case m.fault == bandwidth:
		if free.Before(now) {
			*free = now
		}
		*free = free.Add(time.Duration(n) * time.Second / time.Duration(m.n))
		return *free
	}
	return now
}
