// Package inflight limits how many requests or jobs of a key run at once, over all servers. A
// rate does not stop a client that holds a hundred slow requests open; this does.
//
//	running, err := inflight.Open("redis://localhost:6379/0", inflight.Config{})
//	mux.Handle("POST /export", running.Handler(inflight.Limit{Name: "exports", Key: user, Max: 3})(export))
//
// and for jobs:
//
//	slot, err := running.Acquire(ctx, "tenant:7", 3)
//	if err != nil {
//		return err // errors.Is(err, inflight.ErrFull); any other error: not decided
//	}
//	defer slot.Release()
//
// # What is promised
//
//   - While leases hold, at most Max run at once. A server renews its lease of 10 s by its calls.
//   - The slots of a server that crashes are free when its lease ends; after [Limiter.Close] they
//     are free at once.
//   - A lease that has ended never ends work: a server that was stopped for longer registers again.
//   - If Redis loses its data, at most Max more run until each server has written once.
//
// SECURITY.md has all bounds.
package inflight

// How a slot travels:
//
// acquire makes a want of it (slot.go), which enters its key (key.go). The key decides by itself what it can, and asks Redis
// for the rest: one call for a key at a time (call.go), which write.lua carries out. sweep.go renews leases, repeats calls that
// failed and ends slots that are held too long. http.go has Limit and what a request takes of it, and denial.go the response;
// a slot may count as more than 1.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/redisclient"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// ErrFull means that there is no free slot.
var ErrFull = errors.New("inflight: no free slot")

// errUndecided means that Redis has not decided.
var errUndecided = errors.New("inflight: not decided")

// ErrClosed means that the [Limiter] was closed.
var ErrClosed = errors.New("inflight: the limiter is closed")

// Config says how a [Limiter] works. The zero value is the common choice. Use keyed literals:
// fields may be added.
type Config struct {
	// Prefix begins every key in Redis; "" means "if:". It has no braces.
	Prefix string

	// Timeout is the longest that a decision waits for Redis; 0 means 50 ms, otherwise it is
	// from 1 ms to 1 minute.
	Timeout time.Duration

	// MaxHold is how long a slot counts; 0 means 15 minutes. A slot that is held longer is
	// logged as one whose Release was forgotten, and counts no longer.
	MaxHold time.Duration

	// Deny writes the response to a denied request, in place of the default, a problem+json of
	// RFC 9457. [Decision.Status] is the status to write. Retry-After and Cache-Control are set
	// already.
	Deny func(http.ResponseWriter, *http.Request, *Decision)

	// Observe is called with the Decision about a request, before anything is written. It must
	// not block.
	Observe func(*http.Request, *Decision)

	// Logger gets the problems of Redis, of key functions and of slots that were not released,
	// at most one line in five minutes for each. A line has a code and a link to its section in
	// docs/troubleshooting.md. Nil means [slog.Default].
	Logger *slog.Logger
}

const defaultMaxHold = 15 * time.Minute

func (cfg *Config) check() error {
	err := rediskit.CheckConfig("inflight", cfg.Prefix, cfg.Timeout)
	if cfg.MaxHold < 0 {
		err = errors.Join(err, fmt.Errorf("inflight: MaxHold is %v; want more than 0, or 0 (%v)", cfg.MaxHold, defaultMaxHold))
	}
	return err
}

// Limiter gives out slots. [Open], [New] and [NewMemory] make one. All methods are safe for
// concurrent use.
type Limiter struct {
	cfg      Config
	id       string // of this process, random: a server that starts again is another one
	log      diag.Log
	store    store // nil for a Memory
	close    func() error
	number   atomic.Int64 // of the last call
	servers  atomic.Int64 // that use this Redis, as counted last; 0 before the first count
	keys     atomic.Int64 // in the shards
	sweeping sync.Once
	closed   atomic.Bool     // no key gets a new hold
	life     context.Context // ends when nothing is sent any more
	stop     context.CancelFunc

	counts sync.Map // by the name of a Limit: *counts
	seed   maphash.Seed
	shards [64]shard
}

// Open returns a Limiter on a client of its own, with the settings of redisstore.ClientOptions and a
// URL as redisstore.Open takes. It does not wait for Redis: a server that is down when the program
// starts is used once it is up. Close closes the client. The error is about the URL or the Config.
func Open(rawURL string, cfg Config) (*Limiter, error) {
	o, _, err := redisclient.Options(rawURL, cmp.Or(cfg.Timeout, rediskit.DefaultTimeout))
	if err != nil {
		err = fmt.Errorf("inflight: %w", err)
	}
	if err := errors.Join(err, cfg.check()); err != nil {
		return nil, err
	}
	client := redis.NewUniversalClient(o)
	l, err := New(client, cfg)
	l.close = client.Close
	return l, err
}

// NewMemory returns a Limiter for one server: it keeps its slots in the process.
func NewMemory(cfg Config) (*Limiter, error) { return newLimiter(cfg, nil) }

// New returns a Limiter on the given client: a [redis.Client] (also one made for Sentinel), a
// [redis.ClusterClient] or a [redis.Ring]. redisstore.ClientOptions has settings that fit. The
// caller closes the client, after Close of the Limiter.
func New(client redis.UniversalClient, cfg Config) (*Limiter, error) {
	if err := rediskit.CheckClient("inflight", client); err != nil {
		return nil, err
	}
	return newLimiter(cfg, &redisStore{client: client, prefix: cmp.Or(cfg.Prefix, "if:")})
}

// newLimiter makes a Limiter on a store; nil is a Memory.
func newLimiter(cfg Config, s store) (*Limiter, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, rediskit.DefaultTimeout)
	cfg.MaxHold = cmp.Or(cfg.MaxHold, defaultMaxHold)

	l := &Limiter{cfg: cfg, store: s, log: diag.Log{Logger: cfg.Logger}, seed: maphash.MakeSeed()}
	l.id = fmt.Sprintf("%016x", rand.Uint64())
	l.life, l.stop = context.WithCancel(context.Background())
	for i := range l.shards {
		l.shards[i] = shard{limiter: l, keys: map[string]*key{}}
	}
	return l, nil
}

// Acquire takes a slot of the key if fewer than most are held, over all servers. It does not
// wait for a slot: the error is then [ErrFull]. After any other error it is not decided, as when
// Redis does not answer within Config.Timeout.
//
// All callers of a key pass the same most, which may change over time: the bound is the largest
// that a server passes, and one that is lowered ends nothing. A smaller most for some callers
// is a reserve for the others.
func (l *Limiter) Acquire(ctx context.Context, key string, most int) (*Slot, error) {
	return l.AcquireN(ctx, key, 1, most)
}

// AcquireN is Acquire for work that counts as n. Large n may wait long among small ones: they
// are granted only when so many are free at one moment.
func (l *Limiter) AcquireN(ctx context.Context, key string, n, most int) (*Slot, error) {
	h, err := l.acquire(ctx, key, n, most, patient, l.countsOf(""))
	return newSlot(h), err
}

// Wait is Acquire for jobs: it waits for a slot until ctx ends, also while Redis is away. Callers
// that wait are served in no certain order.
func (l *Limiter) Wait(ctx context.Context, key string, most int) (*Slot, error) {
	for {
		h, err := l.acquire(ctx, key, 1, most, forever, l.countsOf(""))
		if !errors.Is(err, errUndecided) {
			return newSlot(h), err
		}
		if ended := await.Sleep(ctx, awayFor); ended != nil {
			return nil, fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// Close gives back all slots of this server, so that other servers have them at once. Call it
// when the server has stopped, after [http.Server.Shutdown]: work that still runs counts no
// longer. Then Acquire returns [ErrClosed], and Release does nothing. The error says that slots
// could not be given back before ctx ended; they are free when their lease ends.
func (l *Limiter) Close(ctx context.Context) error {
	l.closed.Store(true)
	for i := range l.shards {
		l.shards[i].end()
	}

	ctx, cancel := context.WithTimeout(ctx, shortLease) // then they are free anyway
	defer cancel()
	var err error
	for err == nil && l.keys.Load() > 0 {
		for i := range l.shards {
			l.sweepShard(&l.shards[i])
		}
		if ended := await.Sleep(ctx, time.Millisecond); ended != nil && l.keys.Load() > 0 {
			err = fmt.Errorf("inflight: not all slots were given back: %w", ended)
		}
	}

	l.stop()
	if l.close != nil {
		err = errors.Join(err, l.close())
	}
	return err
}

type counts struct{ held, denied atomic.Int64 }

func (l *Limiter) countsOf(name string) *counts {
	c, ok := l.counts.Load(name)
	if !ok {
		c, _ = l.counts.LoadOrStore(name, new(counts))
	}
	return c.(*counts)
}

// Stats calls each for every Name of a [Limit], and with "" for Acquire and Wait: with the slots that
// this server holds now, and how many requests or calls have found none free.
func (l *Limiter) Stats(each func(name string, held, denied int64)) {
	for name, c := range l.counts.Range {
		each(name.(string), c.(*counts).held.Load(), c.(*counts).denied.Load())
	}
}
