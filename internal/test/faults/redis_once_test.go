package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A stopped server runs the commands in its buffers when it continues, long after
// the callers got an error. Each call is charged at most once, and calls made while
// the breaker was open are not.
func TestFault04CallsToAPausedRedisAreChargedOnce(t *testing.T) {
	o := apart(t, "SIGSTOP, calls, SIGCONT")
	server := redistest.Start(t)
	// Without spare connections: they say HELLO before their first use, so a charge
	// cannot be in their buffers.
	options := server.Options()
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	r := rigOn(t, closing(t, redis.NewClient(options)), config{DenialTTL: -1})
	works(t, r)
	server.Pause()
	var late, resting atomic.Int64
	const bucket = 100_000
	for range 20 {
		redistest.Together(25, func(int) {
			switch _, err := o.take(r, daily("hit", bucket)); {
			case errors.Is(err, redisstore.ErrUnavailable):
				resting.Add(1)
			case err != nil:
				late.Add(1)
			default:
				t.Error("a stopped server answered")
			}
		})
	}
	server.Resume()
	// On each connection the buffered commands run before new ones; connections that
	// were closed are then gone from the list.
	o.recovers(t, r, probing)
	redistest.Eventually(t, ample, "the old connections to end", func() bool {
		return redistest.Stat(t, server.Client(), "clients", "connected_clients:") <= 8
	})
	charged := spent(t, r.witness(t, server.Client()), daily("hit", bucket))
	o.atMost(t, charged, late.Load(), fmt.Sprintf("500 calls on a stopped server, %d of them not even tried", resting.Load()))
	if charged == 0 || resting.Load() == 0 {
		t.Errorf("%d charged, %d not tried; want some of both", charged, resting.Load())
	}
	o.inTime(t, budget)
}

// After a lost reply it is unknown whether the call was charged. It is not sent
// again, whatever the client's settings for retries are.
func TestFault12LostReplyChargesOnce(t *testing.T) {
	o := fault(t, "reply dropped: RST, EOF, cut, timeout")
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	cluster := theCluster(t)
	loss := map[string]func(*redistest.Proxy){
		"RST":          func(p *redistest.Proxy) { p.DropReply(1) },
		"EOF":          func(p *redistest.Proxy) { p.CutAfter(0) },
		"half a reply": func(p *redistest.Proxy) { p.CutAfter(2) },
		"timeout":      func(p *redistest.Proxy) { p.Delay(10 * time.Second) },
	}
	for name, lose := range loss {
		for kind, client := range map[string]*redis.Client{
			"defaults":     closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr})),
			"eager":        closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr, MaxRetries: 10, ReadTimeout: 50 * time.Millisecond})),
			"with timeout": closing(t, redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})),
		} {
			proxy.Pass()
			r := rigOn(t, client, config{})
			works(t, r)
			settles(t, r)
			redistest.ResetStats(t, server.Client())
			lose(proxy)
			if _, err := o.take(r, daily("once", 100)); err == nil {
				t.Errorf("%s, %s: a reply that was lost is no error", kind, name)
			}
			w := r.witness(t, server.Client())
			redistest.Eventually(t, ample, "the charge to be made", func() bool { return spent(t, w, daily("once", 100)) > 0 })
			time.Sleep(20 * time.Millisecond) // for a second charge, which must not come
			if n := spent(t, w, daily("once", 100)); n != 1 {
				t.Errorf("%s, %s: charged %d times; want once", kind, name, n)
			}
		}
		// On a cluster two subjects in one batch are a pipeline, which the client would
		// repeat as a whole.
		through := throughProxies(t, cluster)
		r := rigOn(t, through.client, config{})
		a, b := subjectOn(t, cluster, 0, "a"), subjectOn(t, cluster, 0, "b")
		redistest.Eventually(t, ample, "the cluster to answer", func() bool { return answersFor(r, a) && answersFor(r, b) })
		// The first script for both loses a reply to NOSCRIPT, and the first pipeline one to COMMAND: not here,
		// as batches have both now.
		redistest.Together(40, func(i int) { _ = answersFor(r, []string{a, b}[i%2]) })
		redistest.Eventually(t, ample, "the cluster to answer", func() bool { return answersFor(r, a) && answersFor(r, b) })
		w := r.witness(t, cluster.Client())
		for _, p := range through.proxies {
			lose(p)
		}
		redistest.Together(2, func(i int) {
			if _, err := o.take(r, daily([]string{a, b}[i], 100)); err == nil && name != "RST" { // one of two replies
				t.Errorf("cluster, %s: a reply that was lost is no error", name)
			}
		})
		// Without replies new connections cannot be set up, and calls that wait for one
		// are never sent.
		redistest.Eventually(t, ample, "a charge to be made", func() bool {
			return name == "timeout" || spent(t, w, daily(a, 100))+spent(t, w, daily(b, 100)) > 0
		})
		time.Sleep(20 * time.Millisecond)
		for _, subject := range []string{a, b} {
			if n := spent(t, w, daily(subject, 100)); n > 1 {
				t.Errorf("cluster, %s: charged %d times; want once at most", name, n)
			}
		}
	}
	proxy.Pass()
	o.inTime(t, budget)
}

// proxied is a client of a cluster with a proxy in front of each node.
type proxied struct {
	client  *redis.ClusterClient
	proxies map[string]*redistest.Proxy // by the address of the node
}

func throughProxies(t testing.TB, c *redistest.Cluster) proxied {
	t.Helper()
	p := proxied{proxies: make(map[string]*redistest.Proxy)}
	for _, node := range c.Nodes {
		p.proxies[node.Addr] = redistest.NewProxy(t, node.Addr)
	}
	o := c.Options()
	o.ContextTimeoutEnabled = true
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if proxy := p.proxies[addr]; proxy != nil {
			addr = proxy.Addr
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	p.client = closing(t, redis.NewClusterClient(o))
	return p
}

// A server that keeps 500 scripts evicts ours when other clients send as many in
// between.
func TestFault14EvictedScriptIsSentAgain(t *testing.T) {
	o := apart(t, "500 other scripts between two requests")
	server := redistest.Start(t)
	r := rigAt(t, server.URL()+"?read_timeout=20s", config{Timeout: ample, DenialTTL: -1})
	works(t, r)
	const burst = 1000
	rounds := int64(amount(5, 100))
	for i := range rounds {
		pipe := server.Client().Pipeline()
		for j := range 500 {
			pipe.Eval(t.Context(), fmt.Sprintf("return %d", 500*i+int64(j)), nil)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		if res, err := o.take(r, daily("hit", burst)); err != nil || res.Remaining != burst-1-i {
			t.Errorf("after 500 other scripts: got %+v, %v; want %d remaining", res, err, burst-1-i)
		}
	}
	if redistest.Stat(t, server.Client(), "stats", "evicted_scripts:") == 0 {
		t.Skip("this server evicts no scripts; Redis 7.4 and newer and Valkey do")
	}
	if n := redistest.Stat(t, server.Client(), "errorstats", "errorstat_NOSCRIPT:count="); int64(n) < rounds {
		t.Errorf("the script was missing %d times; want at least %d", n, rounds)
	}
}

// A server that has lost the script gets it again, once, without an error.
func TestFault13ForgottenScriptIsSentAgain(t *testing.T) {
	o := apart(t, "SCRIPT FLUSH at 100 Hz, restart")
	server := redistest.Start(t)
	r := rigAt(t, server.URL()+"?read_timeout=20s", config{Timeout: ample})
	works(t, r)
	stop := during(func() {
		_ = server.Client().ScriptFlush(context.Background()).Err()
		time.Sleep(10 * time.Millisecond)
	})
	var passed [8]int64
	var mu sync.Mutex
	deadline := time.Now().Add(phase(time.Second, 10*time.Second))
	redistest.Together(len(passed), func(i int) {
		for time.Now().Before(deadline) {
			res, err := o.take(r, daily(fmt.Sprint("caller", i), 1_000_000))
			mu.Lock()
			if err != nil {
				t.Errorf("under SCRIPT FLUSH: %v", err)
			} else if res.Allowed {
				passed[i]++
			}
			mu.Unlock()
			time.Sleep(100 * time.Microsecond)
		}
	})
	stop()
	w := r.witness(t, server.Client())
	for i := range passed {
		// A day has 86,400 s, so that a million a day are some 12 a second.
		c := daily(fmt.Sprint("caller", i), 1_000_000)
		refilled := int64(phase(time.Second, 10*time.Second).Seconds()+10) * 12
		if got := spent(t, w, c); got > passed[i] || got < passed[i]-refilled {
			t.Errorf("caller %d: %d units gone after %d allowed requests; want as many, less the refill", i, got, passed[i])
		}
	}
	if redistest.Calls(t, server.Client(), "eval") == 0 {
		t.Error("the script was never sent: the flush has had no effect")
	}

	server.Restart()
	redistest.Eventually(t, ample, "the store to find the restarted server", func() bool { return answers(r) })
	redistest.ResetStats(t, server.Client())
	do(t, server, "script", "flush")
	if got := mustTake(t, r, daily("fresh", 10))[0].Result.Remaining; got != 9 {
		t.Errorf("the first call after a flush leaves %d of 10; want 9", got)
	}
	if sha, text := redistest.Calls(t, server.Client(), "evalsha"), redistest.Calls(t, server.Client(), "eval"); sha != 1 || text != 1 {
		t.Errorf("it took %d EVALSHA and %d EVAL; want one more call", sha, text)
	}
}
