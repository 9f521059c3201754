package gcra

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// lane returns the lane that leads to the server of a key.
func (r *Redis) lane(key string) *lane {
	if r.only != nil {
		return r.only
	}
	server := r.server(key)
	l, ok := r.lanes.Load(server)
	if !ok {
		l, _ = r.lanes.LoadOrStore(server, r.newLane(server))
	}
	return l.(*lane)
}

func (r *Redis) newLane(server string) *lane {
	return &lane{store: r, server: server, breaker: newBreaker(r, server)}
}

// server is the address of the server that a key lives on, or "" where it is
// not known: lanes keep servers apart so that none waits for another. Wherever
// a ride boards, the client finds its way.
func (r *Redis) server(key string) string {
	var node *redis.Client
	var err error
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		if !r.routed.Load() {
			return "" // asking would block until the topology is loaded
		}
		r.reload(topologyAge)
		node, err = c.MasterForKey(context.Background(), key)
	case *redis.Ring:
		node, err = c.GetShardClientForKey(key)
	}
	if node == nil || err != nil {
		return ""
	}
	return node.Options().Addr
}

// topologyAge is how old the topology of a cluster may be, and retryReload how
// long after a failure it is looked up again.
const (
	topologyAge = 2 * time.Second
	retryReload = 200 * time.Millisecond
)

// reload looks the topology of a cluster up in the background, unless that was
// done less than age ago: nodes that do not answer are not asked with every call.
func (r *Redis) reload(age time.Duration) {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return
	}
	now, last := r.mirror.now(), r.reloaded.Load()
	if now-last >= ticksIn(age) && r.reloaded.CompareAndSwap(last, now) {
		c.ReloadState(context.Background())
	}
}

// split takes an admission whose subjects may live on different servers: by
// one ride for each subject, all at once. Where one is refused or fails, what
// the others have taken is given back before the admission is answered, so
// that for the time of a trip a subject looks more charged than it is, never
// less.
func (r *Redis) split(whole *ride) {
	parts, places := whole.bySubject()
	for _, p := range parts {
		r.lane(p.fares[0].key).board(p, false)
	}
	whole.admitted = true
	for i, p := range parts {
		<-p.done
		whole.err = errors.Join(whole.err, p.err)
		whole.admitted = whole.admitted && (p.admitted || p.err != nil)
		for j, place := range places[i] {
			whole.fares[place].ahead = p.fares[j].ahead
		}
	}
	if !whole.admitted || whole.err != nil {
		r.giveBack(parts, whole.deadline)
	}
	for _, p := range parts {
		p.free()
	}
	whole.finish()
}

// bySubject parts a ride, and tells where the fares of each part stand in the
// whole.
func (rd *ride) bySubject() (parts []*ride, places [][]int) {
	at := make(map[string]int)
	for i, f := range rd.fares {
		home := tag(f.key)
		j, known := at[home]
		if !known {
			j = len(parts)
			at[home] = j
			parts, places = append(parts, newRide(rd.refund)), append(places, nil)
			parts[j].deadline = rd.deadline
		}
		parts[j].fares = append(parts[j].fares, f)
		places[j] = append(places[j], i)
	}
	return parts, places
}

// giveBack refunds what the parts of an admission have taken, and waits for it
// until the deadline. Where a refund fails, the subject stays charged:
// stricter, not looser.
func (r *Redis) giveBack(parts []*ride, deadline int64) {
	now := r.mirror.now()
	var refunds []*ride
	for _, p := range parts {
		refund := newRide(true)
		for _, f := range p.fares {
			if f.inc > 0 && p.taken(&f) {
				f.inc, f.ahead = -f.inc, 0
				refund.fares = append(refund.fares, f)
			}
		}
		if len(refund.fares) == 0 {
			refund.free()
			continue
		}
		refund.deadline = now + ticksIn(r.timeout())
		refunds = append(refunds, refund)
		r.lane(refund.fares[0].key).board(refund, false)
	}
	timeUp := time.After(time.Duration(deadline-now) * tick)
	for _, refund := range refunds {
		select {
		case <-refund.done:
			refund.free()
		case <-timeUp:
			return // the others go on
		}
	}
}
