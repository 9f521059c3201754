package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// patience is the Timeout in tests that are not about it.
const patience = 20 * time.Second

var prefixes atomic.Int64

type config = redisstore.Config

// newStore returns a store whose Config has, where cfg has no other, a prefix of its own, patience and no denial cache, since
// tests change the values in Redis directly.
func newStore(t rapid.TB, client redis.UniversalClient, cfg config) *redisstore.Store {
	t.Helper()
	cfg.Prefix = cmp.Or(cfg.Prefix, newPrefix())
	cfg.Timeout = cmp.Or(cfg.Timeout, patience)
	cfg.DenialTTL = cmp.Or(cfg.DenialTTL, -1)
	return storeOn(t, client, cfg)
}

func newPrefix() string { return fmt.Sprintf("rl-%d:", prefixes.Add(1)) }

// storeOn returns a store with the Config as it is.
func storeOn(t rapid.TB, client redis.UniversalClient, cfg config) *redisstore.Store {
	t.Helper()
	r, err := redisstore.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openStore opens a URL and closes the store when the test ends.
func openStore(t testing.TB, url string, cfg config) *redisstore.Store {
	t.Helper()
	r, err := redisstore.Open(url, cfg)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("%s: Close: %v", url, err)
		}
	})
	return r
}

var quiet = slog.New(slog.DiscardHandler)

// defaultClientStore returns a store on a client with go-redis' default options
// and its log.
func defaultClientStore(t testing.TB, addr string, timeout time.Duration) (*redisstore.Store, *diagtest.Text) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	log := new(diagtest.Text)
	return storeOn(t, client, config{Timeout: timeout, Logger: log.Logger()}), log
}

func newClient(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// patientClient returns a client whose timeouts are patience.
func patientClient(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return newClient(t, &redis.Options{Addr: addr, ReadTimeout: patience, WriteTimeout: patience, DialTimeout: patience})
}

func anyRedis(t testing.TB) *redis.Client { return patientClient(t, redistest.Any(t).Options().Addr) }

func embedded(t testing.TB) *redis.Client {
	return patientClient(t, redistest.StartEmbedded(t).Options().Addr)
}

func realRedis(t testing.TB) *redis.Client { return patientClient(t, redistest.Start(t).Addr) }

// anyAndEmbedded are a real server, where there is one, and the embedded Redis.
var anyAndEmbedded = []struct {
	name string
	open func(testing.TB) *redis.Client
}{{"Real", realRedis}, {"Embedded", embedded}}

// do sends a server a command whose arguments contain no spaces.
func do(t testing.TB, s *redistest.Server, command string) {
	t.Helper()
	var args []any
	for arg := range strings.FieldsSeq(command) {
		args = append(args, arg)
	}
	if err := s.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
}

// settled has the store learn the kind of its servers, so that its next batches carry no test of them.
func settled(t testing.TB, r *redisstore.Store) *redisstore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// hourly is a charge of one unit on a bucket of n, to which one comes back in an hour.
func hourly(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.Limit{Count: 1, Per: time.Hour, Burst: n}, Cost: 1}
}

// spent returns how many units of an hourly bucket of n are taken.
func spent(t testing.TB, r *redisstore.Store, subject string, n int64) int64 {
	t.Helper()
	peek, err := gcra.Peek(t.Context(), r, gcra.Charge{Subject: subject, Policy: "p", Limit: hourly(subject, n).Limit})
	if err != nil {
		t.Fatal(err)
	}
	return n - peek.Remaining
}

// plenty is a charge that no test uses up.
var plenty = gcra.Charge{Subject: "someone", Policy: "p", Limit: gcra.PerSecond(100_000), Cost: 1}

// answers reports whether the store decides.
func answers(r *redisstore.Store) bool {
	_, err := gcra.Take(context.Background(), r, plenty)
	return err == nil
}

// breakerOpens calls the store until its breaker is open.
func breakerOpens(t testing.TB, r *redisstore.Store) {
	t.Helper()
	redistest.Eventually(t, patience, "the breaker to open", func() bool {
		_, err := gcra.Take(context.Background(), r, plenty)
		return errors.Is(err, redisstore.ErrUnavailable)
	})
}

// scriptHook is called before the client sends EVAL, EVALSHA or SCRIPT. Its error
// becomes the command's.
type scriptHook func(cmd redis.Cmder) error

func (h scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.call(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (h scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := h.call(cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func (h scriptHook) call(cmd redis.Cmder) error {
	switch cmd.Name() {
	case "eval", "evalsha", "script":
		if err := h(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
	}
	return nil
}
