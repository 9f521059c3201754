package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// standing is where one subject stands.
type standing struct {
	Subject string   `json:"subject"`
	Buckets []bucket `json:"buckets"`
	Reset   []string `json:"reset,omitempty"` // policies that were just reset
	Error   string   `json:"error,omitempty"` // why nothing was reset, or why there are no buckets
}

// bucket is what is left to a subject in one policy.
type bucket struct {
	Policy string `json:"policy"`
	Known  bool   `json:"known"` // false: its limit is not known, and there is no level
	*level
	Rows int `json:"-"` // of the policy, at its first bucket
}

// level is how full a bucket is.
type level struct {
	Limit     string  `json:"limit"`
	IfLimit   bool    `json:"if_limit"` // the limit is one of several, or holds for others
	Left      int64   `json:"left"`     // units
	Burst     int64   `json:"burst"`    // units in a full bucket
	FullAfter seconds `json:"full_after_seconds"`
}

// Used reports whether something is missing in the bucket.
func (l *level) Used() bool { return l.FullAfter > 0 }

// Percent is how full the bucket is.
func (l *level) Percent() int64 { return 100 * l.Left / max(l.Burst, 1) }

// known returns the limits that a subject may be held to by a policy, and
// whether it is: of a policy with LimitFor those that it gave lately or, if
// there were none, the one that holds where it gives none.
func (i *Inspector) known(p *middleware.Policy, subject string) (limits []gcra.Limit, sure bool) {
	if p.LimitFor == nil {
		return []gcra.Limit{p.Limit}, true
	}
	if s := (*i.record.policies.Load())[p.Name]; s != nil {
		if l, ok := s.refused.limitOf(subject); ok {
			return []gcra.Limit{l}, true
		}
		limits = s.limits.limits()
	}
	if len(limits) == 0 && p.Limit != (gcra.Limit{}) {
		return []gcra.Limit{p.Limit}, false
	}
	return limits, len(limits) == 1
}

// atOnce is the most charges that redisstore.Store takes at once.
const atOnce = 256

// look asks the store, which is not changed by it, where the subject stands.
func (i *Inspector) look(ctx context.Context, subject string) *standing {
	at := &standing{Subject: subject, Buckets: []bucket{}}
	var charges []gcra.Charge
	for _, p := range i.current() {
		limits, sure := i.known(&p, subject)
		if len(limits) == 0 {
			at.Buckets = append(at.Buckets, bucket{Policy: p.Name, Rows: 1})
		}
		rows := len(limits)
		for _, l := range limits {
			at.Buckets = append(at.Buckets, bucket{
				Policy: p.Name, Known: true, Rows: rows,
				level: &level{Limit: l.String(), IfLimit: !sure, Burst: l.Capacity()},
			})
			rows = 0
			charges = append(charges, gcra.Charge{Subject: subject, Policy: p.Name, Limit: l, MaxDelay: p.MaxDelay})
		}
	}
	if len(charges) == 0 {
		return at
	}
	for some := range slices.Chunk(charges, atOnce) {
		if _, err := i.store.Take(ctx, some); err != nil {
			at.Buckets, at.Error = []bucket{}, "The store could not tell: "+err.Error()
			return at
		}
	}
	next := 0
	for k := range at.Buckets {
		if b := at.Buckets[k]; b.Known {
			b.Left, b.FullAfter = charges[next].Result.Remaining, seconds(charges[next].Result.ResetAfter)
			next++
		}
	}
	return at
}

// refill makes the subject's buckets full in the policies named, and tells
// whether all were full before, as they are for somebody whom nobody knows.
// After a mistake nothing was refilled.
func (i *Inspector) refill(ctx context.Context, subject string, names []string) (wasFull bool, err error) {
	policies := i.current()
	inForce := make([]string, len(policies))
	type reset struct {
		policy string
		limit  gcra.Limit
	}
	var resets []reset
	for k := range policies {
		p := &policies[k]
		inForce[k] = p.Name
		if !slices.Contains(names, p.Name) {
			continue
		}
		limits, _ := i.known(p, subject)
		if len(limits) == 0 {
			return false, mistake(fmt.Sprintf("policy %s has a limit for each request, and lately there was none to learn one from", p.Name))
		}
		resets = append(resets, reset{p.Name, limits[0]})
	}
	for _, name := range names {
		if !slices.Contains(inForce, name) {
			return false, mistake(fmt.Sprintf("policy is %.80q; want one or more of %s", name, strings.Join(inForce, ", ")))
		}
	}
	if len(resets) == 0 {
		return false, mistake("the field policy is missing; want one or more of " + strings.Join(inForce, ", "))
	}
	wasFull = true
	for _, r := range resets {
		was, err := gcra.Peek(ctx, i.store, subject, r.policy, r.limit)
		wasFull = wasFull && err == nil && was.ResetAfter == 0
		if err := gcra.Reset(ctx, i.store, subject, r.policy, r.limit); err != nil {
			return false, err
		}
	}
	return wasFull, nil
}

// mistake is an error of whoever asks.
type mistake string

func (m mistake) Error() string { return string(m) }
