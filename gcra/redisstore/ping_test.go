package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// Ping asks every master of a cluster, and each of those that fail has its line.
func TestPingCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	r, err := redisstore.Open("redis://" + strings.Join(cluster.Addrs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Logger = slog.New(slog.DiscardHandler)
	redistest.Eventually(t, patience, "the cluster to answer", func() bool { return r.Ping(t.Context()) == nil })
	denied := cluster.Nodes[1]
	serverSays(t, denied, "acl", "setuser", "default", "-set")
	want := "redisstore: redis at " + denied.Addr + " denies the user a command or a key: "
	if err := r.Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("one master denies SET: got %v; want one line, %s...", err, want)
	}

	// One node in the place of the cluster answers for some keys.
	alone, log := impatient(t, cluster.Nodes[0].Addr)
	for i := range 100 {
		c := plenty
		c.Subject = fmt.Sprint(i)
		_, _ = gcra.Take(t.Context(), alone, c)
	}
	redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
	lines := slices.DeleteFunc(log.Lines(""), func(l string) bool { return strings.Contains(l, "no answer within") })
	if len(lines) != 1 || !strings.Contains(lines[0], "level=ERROR") || !strings.Contains(lines[0], "redis://host1:6379,host2:6379") {
		t.Errorf("one node as if it were alone: got\n%s\nwant one line that says what URL to use", strings.Join(lines, "\n"))
	}
}

// Ping asks every shard of a ring.
func TestPingRing(t *testing.T) {
	good, bad := redistest.Start(t), redistest.Start(t, "--requirepass", "hunter2")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": good.Addr, "b": bad.Addr}, HeartbeatFrequency: time.Hour})
	t.Cleanup(func() { ring.Close() })
	want := "redisstore: redis at " + bad.Addr + " requires a password: "
	if err := redisstore.New(ring).Ping(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v; want one line, %s...", err, want)
	}
}

// Ping asks a server that Take leaves alone, and needs longer than the Timeout
// if the way is long.
func TestPingGoesAroundTheBreaker(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, err := redisstore.Open("redis://" + proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Logger = slog.New(slog.DiscardHandler)
	proxy.Delay(100 * time.Millisecond)
	redistest.Eventually(t, patience, "Take to leave the server alone", func() bool {
		_, err := gcra.Take(t.Context(), r, plenty)
		return errors.Is(err, redisstore.ErrUnavailable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Ping(ctx); err != nil {
		t.Errorf("got %v; want nil: the server answers", err)
	}
}

// Ping tells of fields that are wrong, as Take does.
func TestPingOfAnInvalidStore(t *testing.T) {
	r := redisstore.New(nil)
	if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "client is nil") {
		t.Errorf("got %v; want that the client is nil", err)
	}
}

// A store that was opened before its server runs works as soon as it does:
// no connection is left of the dials that failed.
func TestServerThatStartsLate(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	r, err := redisstore.Open("redis://" + server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Logger, r.Timeout = slog.New(slog.DiscardHandler), patience
	for range 100 {
		if err := r.Ping(t.Context()); err == nil {
			t.Fatal("got no error of a server that does not run")
		}
	}
	server.Restart()
	for range 10 {
		if err := r.Ping(t.Context()); err != nil {
			t.Errorf("after the start: %v", err)
		}
	}
}
