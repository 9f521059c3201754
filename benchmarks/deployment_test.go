package main

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// deployment is what keeps the keys: one Redis, a Ring or a cluster.
type deployment struct {
	nodes   []*redistest.Server          // all of them: their CPU time counts
	dial    func() redis.UniversalClient // makes a client that the deployment closes
	cleanup func(func())                 // calls a function at the end of the benchmark
	addr    string                       // of the first server, or of a proxy in front of it
}

// poolSize is the number of connections of every client of go-redis to each
// server: as many as there are callers at most, so that none waits for a connection.
const poolSize = 256

const slow = 10 * time.Second // no command takes as long, whatever else the machine does

func oneRedis(b *testing.B) deployment { return universal(b, redistest.Start(b)) }

func overTLS(b *testing.B) deployment {
	server := redistest.StartTLS(b, redistest.NewCertificates(b))
	return deployed([]*redistest.Server{server}, b.Cleanup, func() redis.UniversalClient {
		options := server.Options()
		options.PoolSize, options.PoolTimeout, options.ContextTimeoutEnabled = poolSize, patience, true
		options.ReadTimeout, options.WriteTimeout = slow, slow
		return redis.NewClient(options)
	})
}

func sixNodes(b *testing.B) deployment { return universal(b, redistest.StartCluster(b).Nodes...) }

// universal is one server, or several that are a cluster.
func universal(b *testing.B, nodes ...*redistest.Server) deployment {
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	return deployed(nodes, b.Cleanup, func() redis.UniversalClient { return newClient(addrs...) })
}

// behind is one server behind a proxy.
func behind(b *testing.B, proxy string, server *redistest.Server) deployment {
	d := deployed([]*redistest.Server{server}, b.Cleanup, func() redis.UniversalClient { return newClient(proxy) })
	d.addr = proxy
	return d
}

// newClient makes a client of one server, or of a cluster.
func newClient(addrs ...string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                    addrs,
		PoolSize:                 poolSize,
		PoolTimeout:              patience,
		ContextTimeoutEnabled:    true,
		ReadTimeout:              slow,
		WriteTimeout:             slow,
		MaintNotificationsConfig: noMaintenance,
	})
}

func deployed(nodes []*redistest.Server, cleanup func(func()), dial func() redis.UniversalClient) deployment {
	d := deployment{nodes: nodes, cleanup: cleanup, dial: func() redis.UniversalClient {
		client := dial()
		cleanup(func() { _ = client.Close() })
		return client
	}}
	if len(nodes) > 0 {
		d.addr = nodes[0].Addr
	}
	return d
}

// ringOfThree is three servers that do not know of each other.
func ringOfThree(b *testing.B) deployment {
	options := &redis.RingOptions{
		Addrs:                 map[string]string{},
		PoolSize:              poolSize,
		PoolTimeout:           patience,
		ContextTimeoutEnabled: true,
		ReadTimeout:           slow,
		WriteTimeout:          slow,
	}
	var nodes []*redistest.Server
	for i := range 3 {
		s := redistest.Start(b)
		nodes = append(nodes, s)
		options.Addrs[strconv.Itoa(i)] = s.Addr
	}
	return deployed(nodes, b.Cleanup, func() redis.UniversalClient { return redis.NewRing(options) })
}

var noMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// admin is for questions about the first server, not for checks.
func (d deployment) admin() *redis.Client { return d.nodes[0].Client() }

// hasGCRA reports whether the server has the command GCRA, which no release of
// Redis has had so far.
func (d deployment) hasGCRA() bool {
	reply, err := d.admin().Do(context.Background(), "COMMAND", "INFO", "GCRA").Slice()
	return err == nil && len(reply) == 1 && reply[0] != nil
}

// cpu is the CPU time that all servers have used.
func (d deployment) cpu(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, n := range d.nodes {
		text := info(b, n.Client(), "cpu")
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(field(text, name), 64)
			if err != nil {
				b.Fatalf("INFO cpu: %s: %v", name, err)
			}
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum
}

func info(b *testing.B, c *redis.Client, section string) string {
	b.Helper()
	text, err := c.Info(b.Context(), section).Result()
	if err != nil {
		b.Fatalf("INFO %s: %v", section, err)
	}
	return text
}

// commands is how many commands the server has run; those that count them do not.
func (d deployment) commands(b *testing.B) int64 {
	b.Helper()
	n, err := strconv.ParseInt(field(info(b, d.admin(), "stats"), "total_commands_processed"), 10, 64)
	if err != nil {
		b.Fatalf("INFO stats: %v", err)
	}
	return n
}

// usage is the MEMORY USAGE of the one key that contains the subject.
func (d deployment) usage(b *testing.B, subject string) int64 {
	b.Helper()
	keys, err := d.admin().Keys(b.Context(), "*"+subject+"*").Result()
	if err != nil || len(keys) != 1 {
		b.Fatalf("KEYS *%s*: %d keys, %v; want 1", subject, len(keys), err)
	}
	n, err := d.admin().MemoryUsage(b.Context(), keys[0], 0).Result()
	if err != nil {
		b.Fatalf("MEMORY USAGE %s: %v", keys[0], err)
	}
	return n
}

// field is the value of a line "name:value" of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
