// Package kind finds out what kind of server a store talks to: a probe in, a kind out. It decides nothing: package send
// chooses how to send by the kind.
//
// A [State] is for a single server or a shard of a ring, which a [Probe] tests. A node of a cluster is not tested: its answers
// to what is sent anyway show what it runs.
package kind

// Package redisstats names the kinds. A new one also needs what the keys of one script share (send/request.go), and a text in
// middleware/inspect/page.html.

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
)

const (
	probeAgain        = time.Second // after a probe without a verdict
	probeSettledAgain = time.Minute // of a server whose kind is known: it may have changed
)

// A State is what a server has shown of itself: the zero value, nothing yet. Times are by the store's clock.
type State struct {
	kind  redisstats.Kind
	guess redisstats.Kind // the verdict of the last probe; two that agree make the kind
	due   int64           // when to probe again
}

// Kind returns the kind of the server, or "" if it is not known.
func (s *State) Kind() redisstats.Kind { return s.kind }

// Settle sets the kind.
func (s *State) Settle(kind redisstats.Kind, now int64) {
	s.kind, s.guess, s.due = kind, kind, now+tat.Ticks(probeSettledAgain)
}

// Due reports whether to probe the server now. The next probe is due in a second, unless Learn sets another time.
func (s *State) Due(now int64) bool {
	if now < s.due {
		return false
	}
	s.due = now + tat.Ticks(probeAgain)
	return true
}

// Learn records the answers to a probe, and reports whether they have settled the kind.
func (s *State) Learn(p *Probe, now int64) (settled bool) {
	kind, sure := p.verdict()

	switch {
	case sure, kind != "" && kind == s.guess:
		s.Settle(kind, now)
		return true
	case kind != "" && s.guess == "":
		s.due = now // the next batch confirms it
	}

	// Also if it shows nothing: two that agree have none between them.
	s.guess = kind
	return false
}
