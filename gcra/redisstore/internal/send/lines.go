package send

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// line returns the line of a key's server. Each server has one of its own, so that none waits for another.
func (s *Sender) line(key string) *line {
	var node *redis.Client
	switch c := s.Client.(type) {
	case *redis.Client:
		return s.only
	case *redis.Ring:
		node, _ = c.GetShardClientForKey(key) // nil with an error
	case *redis.ClusterClient:
		if s.routed.Load() { // before, asking would block until the topology is loaded
			s.reload(topologyAge)
			node, _ = c.MasterForKey(context.Background(), key)
		}
	}
	return s.lineOf(node)
}

// lineOf returns the line of a server. All requests whose server is not known have the line without an address: the client finds it.
func (s *Sender) lineOf(node *redis.Client) *line {
	server := ""
	if node != nil {
		server = node.Options().Addr
	}
	v, ok := s.lines.Load(server)
	if !ok {
		v, _ = s.lines.LoadOrStore(server, &line{Server: server, sender: s, breaker: newBreaker(), pace: pace{window: minWindow, most: mostInFlight(node)}})
	}
	l := v.(*line)
	if l.node.Load() != node {
		l.node.Store(node) // a server that comes back has another client
	}
	return l
}

// topologyAge is how old the topology of a cluster may be, retryReload how old it may be when a batch fails.
const (
	topologyAge = 2 * time.Second
	retryReload = 200 * time.Millisecond
)

// reload looks up the topology of a cluster in the background, unless that was tried less than age ago.
func (s *Sender) reload(age time.Duration) {
	now, last := s.Clock.Now(), s.reloaded.Load()
	// Of all that come at once one looks it up.
	if now-last >= tat.Ticks(age) && s.reloaded.CompareAndSwap(last, now) {
		s.cluster.ReloadState(context.Background())
	}
}

// learnTopology learns from the result of a trip or of a call. A reply shows that the topology is known. After an error of an
// outage it is looked up again, as another node may have taken over.
func (s *Sender) learnTopology(err error) {
	if err == nil {
		s.routed.Store(true)
	} else if s.cluster != nil && rediskit.Down(err) {
		s.reload(retryReload)
	}
}

// Servers are the states of the single server, or of each of several that was used since a time.
func (s *Sender) Servers(since int64) (list []redisstats.ServerState) {
	s.lines.Range(func(_, v any) bool {
		if l := v.(*line); l == s.only || l.used.Load() >= since {
			list = append(list, l.state())
		}
		return true
	})
	slices.SortFunc(list, func(a, b redisstats.ServerState) int { return cmp.Compare(a.Server, b.Server) })
	return list
}

// Check runs take.lua on a key of a server, and probes the server until its kind is known. It returns an error if the store does
// not use such a server, and gives up if several probes show nothing. Nodes of a cluster are not probed.
func (s *Sender) Check(ctx context.Context, server redis.UniversalClient, key string) error {
	inc := tat.Ticks(time.Millisecond)
	room := 1000 * inc // for as many checks at the same time

	// EVAL too: calls need it only while the server lacks the script, but a server may reject it.
	for _, script := range [][2]string{{"eval", takeScript.text}, {"evalsha", takeScript.sha}} {
		cmd := rediskit.Send(ctx, server, []any{script[0], script[1], 1, key, inc, room})
		if _, err := rediskit.Reply(cmd, 1); err != nil {
			return err
		}
	}

	node, ok := server.(*redis.Client)
	if !ok || s.cluster != nil {
		return nil
	}
	l := s.lineOf(node)
	// Two that agree would do. A failover or an eviction may spoil the others.
	for settled, n := false, 0; !settled && n < 4; n++ {
		probe := kind.NewProbe(s.Prefix)
		takeScript.send(ctx, server, nil, probe)

		l.mu.Lock()
		settled = l.single.Learn(probe, s.Clock.Now())
		l.mu.Unlock()
	}
	if l.state().Kind == redisstats.Unusable {
		return rediskit.ErrKeysApart
	}
	return nil
}
