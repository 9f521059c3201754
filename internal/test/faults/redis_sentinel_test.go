package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// following is a store on a client that follows the master, as in docs/stores.md.
func following(t testing.TB, s *redistest.Sentinel, cfg config, sentinels ...string) *rig {
	t.Helper()
	o := s.Options()
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialTimeout, o.ReadTimeout = -1, 500*time.Millisecond, 500*time.Millisecond
	if sentinels != nil {
		o.SentinelAddrs = sentinels
	}
	return rigOn(t, closing(t, redis.NewFailoverClient(o)), cfg)
}

// pair is a master and a replica that follows it through a proxy, without sentinels.
func pair(t testing.TB) (master, replica *redistest.Server, link *redistest.Proxy) {
	t.Helper()
	quick := []string{"--repl-diskless-sync-delay", "0"}
	master, replica = redistest.Start(t, quick...), redistest.Start(t, quick...)
	link = redistest.NewProxy(t, master.Addr)
	host, port, _ := net.SplitHostPort(link.Addr)
	do(t, replica, "replicaof", host, port)
	redistest.Eventually(t, ample, "the replica to follow", func() bool {
		return strings.Contains(replica.Client().Info(t.Context(), "replication").Val(), "master_link_status:up") &&
			strings.Contains(master.Client().Info(t.Context(), "replication").Val(), "state=online")
	})
	return master, replica, link
}

// A master that becomes a replica keeps its connections open and answers each
// request with READONLY.
func TestFault15ReadonlyOnOpenConnections(t *testing.T) {
	o := apart(t, "REPLICAOF; FAILOVER TO")
	server := redistest.Start(t)
	r := rigAt(t, server.URL(), config{})
	works(t, r)

	host, port, _ := net.SplitHostPort(redistest.Start(t).Addr)
	do(t, server, "replicaof", host, port)
	outage(t, o, r, "READONLY")
	do(t, server, "replicaof", "no", "one")
	o.recovers(t, r, probing)

	// A name that moves with the master, as with managed Redis: sentinels would undo a
	// FAILOVER that they did not order.
	old, next, _ := pair(t)
	var name atomic.Pointer[redistest.Server]
	name.Store(old)

	options := old.Options()
	options.ContextTimeoutEnabled = true
	options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, name.Load().Addr)
	}
	f := rigOn(t, closing(t, redis.NewClient(options)), config{})
	works(t, f)

	host, port, _ = net.SplitHostPort(next.Addr)
	do(t, old, "failover", "to", host, port)
	outage(t, o, f, "")
	redistest.Eventually(t, ample, "the failover to end", func() bool {
		return strings.Contains(next.Client().Info(t.Context(), "replication").Val(), "role:master")
	})

	name.Store(next)
	o.recovers(t, f, probing)
	if redistest.Calls(t, next.Client(), "evalsha")+redistest.Calls(t, next.Client(), "eval") == 0 {
		t.Error("the new master has seen no script")
	}
	o.inTime(t, budget)
}

func TestFault16MasterKilled(t *testing.T) {
	o := apart(t, "kill -9 of the master, Sentinel")
	group := theSentinels(t)
	r := following(t, group, config{})
	works(t, r)
	old := group.Master()
	old.Kill()
	stop := during(func() {
		_, _ = o.take(r, plenty("somebody"))
		time.Sleep(2 * time.Millisecond)
	})

	group.Successor(old)
	stop()
	o.recovers(t, r, 2*time.Second+probing) // the sentinels learn of it one after the other
	redistest.Eventually(t, ample, "as many log lines about ends as about outages", func() bool { return len(r.log.Lines(isAway)) == len(r.log.Lines(isBack)) })
	if away := len(r.log.Lines(isAway)); away > 1 {
		t.Errorf("got %d log lines about the outage; want one at most", away)
	}
	o.inTime(t, budget)
}

// A master that was stopped during a failover still acts as the master for a while.
// No request goes to it.
func TestFault17MasterPausedAndResumed(t *testing.T) {
	o := apart(t, "SIGSTOP of the master, failover, SIGCONT")
	group := theSentinels(t)
	r := following(t, group, config{DenialTTL: -1})
	works(t, r)
	old := group.Master()
	redistest.ResetStats(t, old.Client())
	old.Pause()

	var late atomic.Int64
	redistest.Together(20, func(int) {
		if _, err := o.take(r, daily("hit", 1000)); errors.Is(err, redisstore.ErrUnavailable) {
			return
		}
		late.Add(1)
	})

	master := group.Successor(old)
	o.recovers(t, r, probing)

	const after = 50
	for range after {
		redistest.Eventually(t, ample, "a charge on the new master", func() bool {
			_, err := o.take(r, plenty("after"))
			return err == nil
		})
	}

	resumed := time.Now()
	old.Resume()
	for time.Since(resumed) < phase(500*time.Millisecond, 10*time.Second) {
		_, _ = o.take(r, plenty("after")) // it may fail while connections change; only its server matters
	}

	// Only commands in its buffers reached the old master.
	if n := redistest.Calls(t, old.Client(), "evalsha"); n > late.Load() {
		t.Errorf("the old master ran %d scripts; want at most the %d calls in flight when it stopped", n, late.Load())
	}
	mustHeal(t, healSentinels(t, group))
	if n := spent(t, r.witness(t, master.Client()), daily("hit", 1000)); n > late.Load() {
		t.Errorf("%d units charged by %d calls", n, late.Load())
	}
	o.inTime(t, budget)
}

// Any sentinel knows the master's address, and a silent one does not keep the client
// from asking the others.
func TestFault18SentinelIsSilent(t *testing.T) {
	o := apart(t, "first sentinel refuses connections or is silent; then the one in use, at a failover")
	group := theSentinels(t)
	addrs := group.Addrs()
	proxy := redistest.NewProxy(t, addrs[0])
	for name, fail := range map[string]func(){"refuses connections": proxy.Refuse, "is silent": proxy.Blackhole} {
		fail()
		r := following(t, group, config{}, proxy.Addr, addrs[1], addrs[2])
		var first outcome
		first.recovers(t, r, probing)
		t.Logf("with a first sentinel that %s the first answer came after %v", name, first.recovery)
		o.recovery = max(o.recovery, first.recovery)
	}

	proxy.Pass()
	r := following(t, group, config{}, proxy.Addr)
	works(t, r)
	old := group.Master()
	proxy.Blackhole()
	do(t, group.Sentinels[1], "sentinel", "failover", group.MasterName)
	group.Successor(old)
	o.recovers(t, r, probing)
	o.inTime(t, budget)
}

// Writes that have not reached a replica are lost with the master, and buckets go
// back to the replica's values. The overshoot is what was allowed in the lag, one
// burst at most.
func TestFault19WritesLostAtFailover(t *testing.T) {
	o := apart(t, "replication cut, kill -9")
	group := theSentinels(t)
	r := following(t, group, config{DenialTTL: -1}) // the cache would hide a part of it
	works(t, r)

	old := group.Master()
	var links []*redistest.Proxy
	for _, replica := range group.Replicas() {
		link := redistest.NewProxy(t, old.Addr)
		host, port, _ := net.SplitHostPort(link.Addr)
		do(t, replica, "replicaof", host, port)
		links = append(links, link)
	}

	redistest.Eventually(t, ample, "the replicas to follow", func() bool {
		return redistest.Stat(t, old.Client(), "replication", "connected_slaves:") == 2
	})
	const burst, early, lag = 10, 3, 5
	c := daily("hit", burst)
	for range early {
		mustTake(t, r, c)
	}
	old.AwaitReplicas(2)
	for _, link := range links {
		link.Blackhole()
	}
	for range lag {
		mustTake(t, r, c)
	}
	old.Kill()
	group.Successor(old)
	o.recovers(t, r, probing)

	var after int64
	for range 2 * burst {
		res, err := o.take(r, c)
		for err != nil {
			res, err = o.take(r, c)
		}
		if res.Allowed {
			after++
		}
	}

	o.injected += fmt.Sprintf(": %d units allowed in the lag, %d of a burst of %d too many", lag, early+lag+after-burst, burst)
	o.atMost(t, early+lag+after, burst+lag, "burst and lag")
	if after != burst-early {
		t.Errorf("%d allowed after the failover; want %d: the %d units of the lag are lost", after, burst-early, lag)
	}
}

// Two masters at once are two buckets for as long as it lasts. With
// min-replicas-to-write the master without replicas stops allowing requests.
func TestFault20SplitBrain(t *testing.T) {
	o := apart(t, "replication cut, the replica promoted, clients on both")
	master, replica, link := pair(t)
	cfg := config{Prefix: "split:", DenialTTL: -1}
	here, there := rigAt(t, master.URL(), cfg), rigAt(t, replica.URL(), cfg)
	const rate, burst = 20, 10

	c := gcra.Charge{Subject: "hit", Policy: "p", Limit: gcra.PerSecond(rate).WithBurst(burst), Cost: 1}
	var allowed int64
	ask := func(r *rig) {
		if res, err := o.take(r, c); err == nil && res.Allowed {
			allowed++
		}
	}

	start := time.Now()
	for allowed < burst {
		ask(here)
	}
	link.Blackhole()
	do(t, replica, "replicaof", "no", "one")

	split := time.Now()
	for time.Since(split) < phase(time.Second, 10*time.Second) {
		ask(here)
		ask(there)
		time.Sleep(5 * time.Millisecond)
	}

	end := time.Now()
	bound := burst + rate*end.Sub(start).Seconds() + 1
	overshoot := burst + rate*end.Sub(split).Seconds() + 1
	o.atMost(t, allowed, int64(bound+overshoot), "two masters")
	o.injected += fmt.Sprintf(": %d more than one master allows, of %d at most", max(0, allowed-int64(bound)), int64(overshoot))

	link.Refuse()
	do(t, master, "config", "set", "min-replicas-to-write", 1)
	redistest.Eventually(t, ample, "the master without replicas to refuse writes", func() bool {
		_, err := o.take(here, plenty("somebody"))
		return err != nil
	})

	outage(t, o, here, "NOREPLICAS")
	redistest.Eventually(t, ample, "the promoted replica to work", func() bool { return answers(there) })
}

// The clock of a promoted replica may differ.
func TestFault39NewMasterWithAnotherClock(t *testing.T) {
	o := apart(t, "failover, clock of the new master 30 s behind and ahead")
	group := theSentinels(t)
	r := following(t, group, config{})
	works(t, r)
	old := group.Master()
	do(t, group.Sentinels[0], "sentinel", "failover", group.MasterName)
	group.Successor(old)
	o.recovers(t, r, probing)
	mustHeal(t, healSentinels(t, group)) // until then the sentinels do not agree
	master := group.Master()
	back(t, new(outcome), master, following(t, group, config{Timeout: ample, DenialTTL: -1}), 30*time.Second)
	ahead(t, o, master, following(t, group, config{Timeout: ample, DenialTTL: -1}), 30*time.Second)
}
