package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masterName = "mymaster"
	sentinels  = 3
	quorum     = 2
	replicas   = 2

	// In milliseconds; Redis's own values are 30 s and 180 s.
	downAfter       = 500
	failoverTimeout = 3000
)

// Sentinel is a master with two replicas and three sentinels, which start a failover
// after 500 ms without an answer. They repeat a failed failover after 6 s.
type Sentinel struct {
	MasterName string
	Sentinels  []*Server
	Servers    []*Server // the first was the master to begin with

	t          testing.TB
	clientOnce sync.Once
	client     *redis.Client
}

// StartSentinel runs the servers and waits until every replica follows the
// master and every sentinel knows all of them and its peers. Args go to the
// master and the replicas (see [Start]).
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	Need(t)
	args = replicating(args)
	master, err := boot(t, options{args: args})
	if err != nil {
		t.Fatal(err)
	}

	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}

	follow := options{args: append([]string{"--replicaof", host, port}, args...)}
	watch := options{sentinel: func(own int) string { return sentinelConf(own, host, port, master.password) }}
	all, err := bootAll(t, slices.Concat(
		slices.Repeat([]options{follow}, replicas),
		slices.Repeat([]options{watch}, sentinels))...)
	if err != nil {
		t.Fatal(err)
	}

	s := &Sentinel{
		MasterName: masterName,
		Servers:    append([]*Server{master}, all[:replicas]...),
		Sentinels:  all[replicas:],
		t:          t,
	}
	if err := s.form(); err != nil {
		t.Fatalf("the sentinels did not form: %v", err)
	}
	return s
}

// sentinelConf is the configuration of the sentinel on port own.
func sentinelConf(own int, host, port, password string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "port %d\nbind 127.0.0.1\n", own)
	fmt.Fprintf(&b, "sentinel monitor %s %s %s %d\n", masterName, host, port, quorum)
	fmt.Fprintf(&b, "sentinel down-after-milliseconds %s %d\n", masterName, formation.Milliseconds())
	fmt.Fprintf(&b, "sentinel failover-timeout %s %d\n", masterName, failoverTimeout)
	if password != "" {
		fmt.Fprintf(&b, "sentinel auth-pass %s %s\n", masterName, password)
	}
	return b.String()
}

// form waits until all servers know each other.
func (s *Sentinel) form() error {
	ctx, cancel := context.WithTimeout(context.Background(), formation)
	defer cancel()

	for _, r := range s.Servers[1:] {
		if err := poll(formation, func() error {
			info, err := r.Client().Info(ctx, "replication").Result()
			if err == nil && field(info, "master_link_status") != "up" {
				err = fmt.Errorf("the link to its master is %q", field(info, "master_link_status"))
			}
			return err
		}); err != nil {
			return r.explain(err)
		}
	}

	// Sentinels publish themselves every 2 s and ask the master for its replicas every
	// 10 s. Shorten that only until they know each other, so that a failover takes as
	// long as elsewhere.
	s.Hurry()
	defer s.DoNotHurry()

	for _, server := range s.Sentinels {
		if err := poll(formation, func() error { return watches(ctx, server) }); err != nil {
			return server.explain(err)
		}
	}

	// Not before: on a busy machine they would take a master that boots for failed, and fail over.
	return s.failOverAfter(downAfter)
}

// Stay has the sentinels fail over no more, and returns when all name one master: on a busy machine a master may be silent for
// as long as one that is away, and two sentinels may each choose another.
func (s *Sentinel) Stay() {
	s.t.Helper()
	if err := s.failOverAfter(int(formation.Milliseconds())); err != nil {
		s.t.Fatal(err)
	}

	Eventually(s.t, formation, "the sentinels to agree", func() bool {
		master := s.Master().Addr
		return !slices.ContainsFunc(s.Sentinels, func(server *Server) bool {
			c := redis.NewSentinelClient(server.Options())
			defer c.Close()
			m, err := c.Master(context.Background(), masterName).Result()
			return err != nil || net.JoinHostPort(m["ip"], m["port"]) != master || strings.Contains(m["flags"], "failover_in_progress")
		})
	})
}

// failOverAfter sets for how many milliseconds a master must be silent.
func (s *Sentinel) failOverAfter(silent int) error {
	for _, server := range s.Sentinels {
		err := server.Client().Do(context.Background(), "sentinel", "set", masterName, "down-after-milliseconds", silent).Err()
		if err != nil {
			return server.explain(err)
		}
	}
	return nil
}

// Hurry has sentinels ask ten times a second what they otherwise ask every 2 and
// 10 s. It needs SENTINEL DEBUG of Redis 7.0, and does nothing on older servers.
func (s *Sentinel) Hurry() { s.periods(100, 100) }

// DoNotHurry sets sentinels back to their defaults, so that a failover takes as long
// as elsewhere.
func (s *Sentinel) DoNotHurry() { s.periods(2_000, 10_000) }

// periods sets how often sentinels publish and ask, in milliseconds.
func (s *Sentinel) periods(publish, info int) {
	for _, server := range s.Sentinels {
		if server.program.since7() {
			_ = server.Client().Do(context.Background(), "sentinel", "debug", "publish-period", publish, "info-period", info).Err()
		}
	}
}

// watches returns nil when a sentinel knows the replicas and its peers and is
// connected to them.
func watches(ctx context.Context, server *Server) error {
	c := redis.NewSentinelClient(server.Options())
	defer c.Close()
	if err := c.CkQuorum(ctx, masterName).Err(); err != nil {
		return err
	}

	seen, err := c.Replicas(ctx, masterName).Result()
	if err != nil {
		return err
	}
	if n := count(seen, "flags", "slave"); n != replicas {
		return fmt.Errorf("it is connected to %d replicas: %v", n, seen)
	}
	if n := count(seen, "master-link-status", "ok"); n != replicas {
		return fmt.Errorf("it knows %d replicas to be linked: %v", n, seen)
	}

	if seen, err = c.Sentinels(ctx, masterName).Result(); err != nil {
		return err
	}
	if n := count(seen, "flags", "sentinel"); n != sentinels-1 {
		return fmt.Errorf("it is connected to %d sentinels: %v", n, seen)
	}
	return nil
}

// count is the number of elements with that value in that field.
func count(all []map[string]string, field, value string) int {
	n := 0
	for _, m := range all {
		if m[field] == value {
			n++
		}
	}
	return n
}

// Addrs are the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, server := range s.Sentinels {
		addrs[i] = server.Addr
	}
	return addrs
}

// Master is the master that the first answering sentinel names, alive or not. During
// a failover the sentinels may differ for some two seconds.
func (s *Sentinel) Master() (master *Server) {
	s.t.Helper()
	err := poll(formation, func() error {
		var errs []error
		for _, server := range s.Sentinels {
			addr, err := masterOf(server)
			i := slices.IndexFunc(s.Servers, func(o *Server) bool { return o.Addr == addr })
			if err == nil && i >= 0 {
				master = s.Servers[i]
				return nil
			}
			errs = append(errs, fmt.Errorf("sentinel %s names %q: %w", server.Addr, addr, err))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		s.t.Fatalf("no sentinel names the master: %v", err)
	}
	return master
}

// Successor waits until the sentinels name another master than old, and returns that one. How long it takes is up to them:
// after a split vote they wait 6 s.
func (s *Sentinel) Successor(old *Server) *Server {
	s.t.Helper()
	Eventually(s.t, formation, "another master", func() bool { return s.Master() != old })
	return s.Master()
}

// masterOf asks one sentinel.
func masterOf(server *Server) (string, error) {
	o := server.Options()
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	c := redis.NewSentinelClient(o)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	addr, err := c.GetMasterAddrByName(ctx, masterName).Result()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(addr[0], addr[1]), nil
}

// Replicas are the servers that are not the [Sentinel.Master].
func (s *Sentinel) Replicas() []*Server {
	s.t.Helper()
	master := s.Master()
	return slices.DeleteFunc(slices.Clone(s.Servers), func(o *Server) bool { return o == master })
}

// Options returns the options of [Sentinel.Client]: go-redis's defaults, with which
// a failover client has maintenance notifications off. Change them for
// a client of your own.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName:    s.MasterName,
		SentinelAddrs: s.Addrs(),
		Password:      s.Servers[0].password,
	}
}

// Client is a client that follows the master, always the same one, closed at
// cleanup.
func (s *Sentinel) Client() *redis.Client {
	s.clientOnce.Do(func() {
		s.client = redis.NewFailoverClient(s.Options())
		closeAtCleanup(s.t, s.client)
	})
	return s.client
}
