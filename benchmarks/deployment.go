package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// useServer chooses the program that redistest starts.
func useServer(program string) error {
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return fmt.Errorf("-server is %q: %w; want redis-server (Debian: apt-get install redis-server) or the path of one", program, err)
	}
	return os.Setenv("RATELIMIT_TEST_SERVER", path)
}

// deployment is what keeps the keys: one Redis, a Ring or a cluster.
type deployment struct {
	nodes []*redistest.Server              // all of them: their CPU time counts
	dial  func() (c redis.UniversalClient) // makes a client
}

// poolSize is the number of connections of every client of go-redis to each
// server: as many as there are callers at most, so that none waits for a connection.
const poolSize = 256

const slow = 10 * time.Second // no command takes as long, whatever else the machine does

func oneRedis(t testing.TB) deployment { return universal(redistest.Start(t)) }

func sixNodes(t testing.TB) deployment { return universal(redistest.StartCluster(t).Nodes...) }

// universal is one server, or several that are a cluster.
func universal(nodes ...*redistest.Server) deployment {
	options := &redis.UniversalOptions{
		PoolSize:                 poolSize,
		PoolTimeout:              time.Second,
		ContextTimeoutEnabled:    true,
		ReadTimeout:              slow,
		WriteTimeout:             slow,
		MaintNotificationsConfig: noMaintenance,
	}
	for _, n := range nodes {
		options.Addrs = append(options.Addrs, n.Addr)
	}
	return deployment{nodes, func() redis.UniversalClient { return redis.NewUniversalClient(options) }}
}

// ringOfThree is three servers that do not know of each other.
func ringOfThree(t testing.TB) deployment {
	options := &redis.RingOptions{
		Addrs:                 map[string]string{},
		PoolSize:              poolSize,
		PoolTimeout:           time.Second,
		ContextTimeoutEnabled: true,
		ReadTimeout:           slow,
		WriteTimeout:          slow,
	}
	var d deployment
	for i := range 3 {
		s := redistest.Start(t)
		d.nodes = append(d.nodes, s)
		options.Addrs[strconv.Itoa(i)] = s.Addr
	}
	d.dial = func() redis.UniversalClient { return redis.NewRing(options) }
	return d
}

var noMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// admin is for questions about the first server, not for checks.
func (d deployment) admin() *redis.Client { return d.nodes[0].Client() }

// program is the name of the server and its version.
func (d deployment) program(ctx context.Context) (string, error) {
	text, err := info(ctx, d.admin(), "server")
	if v := field(text, "valkey_version"); v != "" {
		return "Valkey " + v, err
	}
	return "Redis " + field(text, "redis_version"), err
}

// hasGCRA reports whether the server has the command GCRA, which no release of
// Redis has had so far.
func (d deployment) hasGCRA(ctx context.Context) (bool, error) {
	reply, err := d.admin().Do(ctx, "COMMAND", "INFO", "GCRA").Slice()
	return len(reply) == 1 && reply[0] != nil, err
}

// cpu is the CPU time that all servers have used.
func (d deployment) cpu(ctx context.Context) (sum time.Duration, err error) {
	for _, n := range d.nodes {
		text, err := info(ctx, n.Client(), "cpu")
		if err != nil {
			return 0, err
		}
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(field(text, name), 64)
			if err != nil {
				return 0, fmt.Errorf("INFO cpu: %s: %w", name, err)
			}
			sum += time.Duration(seconds * float64(time.Second))
		}
	}
	return sum, nil
}

func info(ctx context.Context, c *redis.Client, section string) (string, error) {
	text, err := c.Info(ctx, section).Result()
	if err != nil {
		return "", fmt.Errorf("INFO %s: %w", section, err)
	}
	return text, nil
}

// memory is what the server uses, in bytes.
func (d deployment) memory(ctx context.Context) (int64, error) {
	text, err := info(ctx, d.admin(), "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(field(text, "used_memory"), 10, 64)
}

// commands counts the commands that the server has run, those that ask for
// statistics aside.
func (d deployment) commands(ctx context.Context) (int64, error) {
	text, err := info(ctx, d.admin(), "commandstats")
	if err != nil {
		return 0, err
	}
	return countCommands(text)
}

func countCommands(commandstats string) (sum int64, err error) {
	for line := range strings.Lines(commandstats) {
		// cmdstat_get:calls=3,usec=7,...
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":calls=")
		if !ok || name == "cmdstat_info" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}

// usage is the MEMORY USAGE of the one key that contains the subject.
func (d deployment) usage(ctx context.Context, subject string) (int64, error) {
	keys, err := d.admin().Keys(ctx, "*"+subject+"*").Result()
	if err != nil {
		return 0, fmt.Errorf("KEYS: %w", err)
	}
	if len(keys) != 1 {
		return 0, fmt.Errorf("KEYS *%s*: %d keys; want 1", subject, len(keys))
	}
	n, err := d.admin().MemoryUsage(ctx, keys[0], 0).Result()
	if err != nil {
		return 0, fmt.Errorf("MEMORY USAGE %s: %w", keys[0], err)
	}
	return n, nil
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
