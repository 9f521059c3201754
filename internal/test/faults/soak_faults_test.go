package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// soakFault is one of the faults of [TestSoak].
type soakFault struct {
	name  string
	store string
	loses bool // Redis may lose its state: SECURITY.md allows a burst for that
	// inject lets the fault last about d, and returns a subject that the store can
	// answer for when it has recovered.
	inject func(d time.Duration) (subject string)
	heal   func() bool   // after the recovery: starts what was killed, and reports whether all are healthy; or nil
	within time.Duration // the recovery
}

// soakRedis are the servers behind the stores.
type soakRedis struct {
	single   *redistest.Server
	proxy    *redistest.Proxy
	cluster  *redistest.Cluster
	sentinel *redistest.Sentinel
}

// faults returns the faults of a round.
func (s *soakRedis) faults(c *client) []soakFault {
	link := func(name string, begin func()) soakFault {
		return soakFault{name: name, store: "single", within: probing, inject: func(d time.Duration) string {
			begin()
			time.Sleep(d)
			s.proxy.Pass()
			return "somebody"
		}}
	}

	again := func(name string, every time.Duration, f func()) soakFault {
		return soakFault{name: name, store: "single", within: probing, inject: func(d time.Duration) string {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
				f()
			}
			return "somebody"
		}}
	}

	command := func(args ...any) func() {
		return func() { _ = s.single.Client().Do(context.Background(), args...).Err() } // one of a few may fail
	}

	server := func(name string, loses bool, begin, end func()) soakFault {
		return soakFault{name: name, store: "single", loses: loses, within: probing, inject: func(d time.Duration) string {
			begin()
			time.Sleep(d)
			end()
			return "somebody"
		}}
	}

	var old *redistest.Server
	healAll := func() bool { return healCluster(s.cluster) }
	healGroup := func() bool { return healSentinels(c.t, s.sentinel) }

	// Another server takes over only after its heartbeats have stopped for a while.
	const failover = 15 * time.Second
	return []soakFault{
		server("none", false, func() {}, func() {}),
		server("kill -9, restart without data", true, s.single.Kill, s.single.Restart),
		server("SIGSTOP", false, s.single.Pause, s.single.Resume),
		again("SIGSTOP for 120 ms in 320", 200*time.Millisecond, func() {
			s.single.Pause()
			time.Sleep(120 * time.Millisecond)
			s.single.Resume()
		}),
		server("maxmemory 1: OOM", false, command("config", "set", "maxmemory", 1), command("config", "set", "maxmemory", 0)),
		again("SCRIPT FLUSH every 20 ms", 20*time.Millisecond, command("script", "flush")),
		again("CLIENT KILL every 50 ms", 50*time.Millisecond, command("client", "kill", "type", "normal")),

		link("blackhole", s.proxy.Blackhole),
		link("connections refused", s.proxy.Refuse),
		link("1 % lost", func() { s.proxy.Lose(0.01, 0.01) }),
		link("10 % lost", func() { s.proxy.Lose(0.1, 0.1) }),
		link("30 % lost", func() { s.proxy.Lose(0.3, 0.3) }),
		link("50 % lost", func() { s.proxy.Lose(0.5, 0.5) }),
		link("30 % of requests lost", func() { s.proxy.Lose(0.3, 0) }),
		link("30 % of replies lost", func() { s.proxy.Lose(0, 0.3) }),
		link("30 % sent again after 200 ms", func() { s.proxy.Resend(0.3, 200*time.Millisecond) }),
		link("20 to 80 ms late", func() { s.proxy.DelayBetween(20*time.Millisecond, 80*time.Millisecond) }),
		link("1 KB a second", func() { s.proxy.Bandwidth(1000) }),

		again("half-open every second", time.Second, s.proxy.HalfOpen),
		again("a lost reply every 20 ms", 20*time.Millisecond, func() { s.proxy.DropReply(1) }),

		{name: "cluster: master killed, failover", store: "cluster", loses: true, within: failover, heal: healAll, inject: func(time.Duration) string {
			n := rand.IntN(3)
			subject := subjectOn(c.t, s.cluster, n, "s")
			wholeShards(c.t, s.cluster)[n].master.Kill()
			return subject
		}},
		{name: "cluster: master stopped, failover", store: "cluster", loses: true, within: failover, heal: func() bool { old.Resume(); return healAll() }, inject: func(time.Duration) string {
			n := rand.IntN(3)
			subject := subjectOn(c.t, s.cluster, n, "s")
			old = wholeShards(c.t, s.cluster)[n].master
			old.Pause()
			return subject
		}},

		{name: "cluster: CLUSTER FAILOVER", store: "cluster", within: failover, heal: healAll, inject: func(time.Duration) string {
			n := rand.IntN(3)
			subject := subjectOn(c.t, s.cluster, n, "s")
			do(c.t, wholeShards(c.t, s.cluster)[n].replica, "cluster", "failover")
			return subject
		}},

		{name: "Sentinel: master killed, failover", store: "sentinel", loses: true, within: 2 * failover, inject: func(time.Duration) string {
			s.sentinel.Master().Kill()
			return "somebody"
		}, heal: healGroup},
		{name: "Sentinel: master stopped, failover", store: "sentinel", loses: true, within: 2 * failover, inject: func(time.Duration) string {
			old = s.sentinel.Master()
			old.Pause()
			return "somebody"
		}, heal: func() bool { old.Resume(); return healGroup() }},
	}
}
