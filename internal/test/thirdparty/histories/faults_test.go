package histories

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// go-redis logs each failure.
func init() { logging.Disable() }

// servers are what a history is of.
type servers interface {
	url() string
	disturb(round int) (fault string)        // during a round; "" if it does nothing
	quiet() (at int64, happened []operation) // after a round: no call that was sent before is executed later
}

// A single server has a proxy in front of it.
type single struct {
	t      testing.TB
	server *redistest.Server
	proxy  *redistest.Proxy
	keeps  bool     // it has an append-only file, and its data after a kill
	faults []string // to choose from, in all rounds but the first
	erased []operation
}

func startSingle(t testing.TB, keeps bool, faults ...string) *single {
	t.Helper()
	var args []string
	if keeps {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	server := redistest.Start(t, args...)
	return &single{t: t, server: server, proxy: redistest.NewProxy(t, server.Addr), keeps: keeps, faults: faults}
}

func (s *single) url() string { return "redis://" + s.proxy.Addr }

var allFaults = []string{"kill", "flush", "pause", "drop", "cut", "reset", "blackhole", "delay"}

// disturb injects a fault, for up to 150 ms.
func (s *single) disturb(round int) string {
	s.t.Helper()
	if round == 0 || len(s.faults) == 0 {
		return ""
	}
	time.Sleep(rand.N(50 * time.Millisecond))
	fault := s.faults[rand.IntN(len(s.faults))]
	s.inject(fault, 20*time.Millisecond+rand.N(130*time.Millisecond))
	return fault
}

func (s *single) inject(fault string, lasting time.Duration) {
	s.t.Helper()
	o := operation{Kind: erased, Call: ticksAt(time.Now())}
	switch fault {
	case "flush":
		if err := s.server.Client().FlushAll(context.Background()).Err(); err != nil {
			s.t.Fatal(err)
		}
		s.forgot(o)
		return
	case "kill":
		s.server.Kill()
		time.Sleep(lasting)
		s.server.Restart()
		if !s.keeps {
			s.forgot(o)
		}
		return
	case "pause":
		s.server.Pause()
		defer s.server.Resume()
	case "drop": // the proxy passes by itself afterwards
		s.proxy.DropReply(1 + rand.IntN(3))
		return
	case "cut":
		s.proxy.CutAfter(rand.IntN(200))
	case "reset":
		s.proxy.Reset()
		return
	case "blackhole":
		s.proxy.Blackhole()
	case "delay":
		s.proxy.Delay(rand.N(80 * time.Millisecond))
	}

	time.Sleep(lasting)
	s.proxy.Pass()
}

// forgot records that the server has forgotten everything since the operation began.
func (s *single) forgot(o operation) {
	o.Return = ticksAt(time.Now())
	s.erased = append(s.erased, toAll(o)...)
}

// toAll is what happened to a server, once for each subject.
func toAll(o operation) (all []operation) {
	for i := range subjects {
		o.Charges = []gcra.Charge{{Subject: subject(i)}}
		all = append(all, o)
	}
	return all
}

func subject(i int) string { return fmt.Sprint("s", i) }

// quiet ends the connections of the proxy, so that it sends nothing later.
func (s *single) quiet() (int64, []operation) {
	s.t.Helper()
	s.proxy.Pass()
	s.proxy.Reset()
	settled(s.t, s.server.Client())
	happened := s.erased
	s.erased = nil
	return ticksAt(time.Now()), happened
}

// settled returns when a server has read what was sent to it. It reads its sockets in
// turns: in the turn of the second PING all is read that had come before the first.
func settled(t testing.TB, client redis.Cmdable) {
	t.Helper()
	ping := func() bool { return client.Ping(context.Background()).Err() == nil }
	redistest.Eventually(t, patience, "the server to answer", ping)
	redistest.Eventually(t, patience, "the server to answer", ping)
}
