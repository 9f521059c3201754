package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// patience is the Timeout of stores whose speed is not the story.
const patience = 20 * time.Second

var prefixes atomic.Int64

// newStore returns a store on client that shares no key with any other. It has
// no mirror: tests move time and damage values behind its back.
func newStore(client redis.UniversalClient) *redisstore.Store {
	r := redisstore.New(client)
	r.Prefix = fmt.Sprintf("rl-%d:", prefixes.Add(1))
	r.Timeout = patience
	r.NoDenialCache = true
	return r
}

// anyRedis is redistest.Any with a client that is as patient as newStore.
func anyRedis(t testing.TB) *redis.Client { return unhurried(t, redistest.Any(t).Options().Addr) }

func embedded(t testing.TB) *redis.Client {
	return unhurried(t, redistest.StartEmbedded(t).Options().Addr)
}

func unhurried(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return newClient(t, &redis.Options{Addr: addr, ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience})
}

func newClient(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// impatient is a store on a client whose own settings are those of go-redis.
func impatient(t *testing.T, addr string) (*redisstore.Store, *diagtest.Text) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	log := new(diagtest.Text)
	r := redisstore.New(client)
	r.Timeout = 100 * time.Millisecond
	r.Logger = slog.New(slog.NewTextHandler(log, nil))
	return r, log
}

var plenty = gcra.Charge{Subject: "someone", Policy: "p", Limit: gcra.PerSecond(100_000), Cost: 1}

func works(r *redisstore.Store) bool {
	_, err := gcra.Take(context.Background(), r, plenty)
	return err == nil
}

// spentOf is how many units of an hourly bucket of n are gone, as r's Redis
// has it.
func spentOf(t testing.TB, r *redisstore.Store, subject string, n int64) int64 {
	t.Helper()
	return n - gcratest.MustTake(t, r, gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerHour(n)})[0].Result.Remaining
}

func hourly(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerHour(n), Cost: 1}
}

const tick = 100 * time.Nanosecond

// tatOf is the stored TAT of the only key with the prefix.
func onlyKey(t testing.TB, client redis.UniversalClient, prefix string) (key string, tat int64) {
	t.Helper()
	keys := redistest.Keys(t, client, prefix)
	if len(keys) != 1 {
		t.Fatalf("got keys %q with prefix %s; want one", keys, prefix)
	}
	v := client.Get(context.Background(), keys[0]).Val()
	tat, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("the value of %s is %q; want a plain integer", keys[0], v)
	}
	return keys[0], tat
}

// observed is a client hook that sees each call of the script on its way, and
// may fail it.
type observed struct {
	calls  atomic.Int64
	onCall func(call int64, args []any) error
}

func (o *observed) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (o *observed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			if err := o.onCall(o.calls.Add(1), cmd.Args()); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (o *observed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func serverSays(t *testing.T, s *redistest.Server, words ...string) {
	t.Helper()
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	if err := s.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", words, err)
	}
}
