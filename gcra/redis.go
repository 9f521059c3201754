package gcra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Redis is a [Store] in a Redis (6.2 or newer, or a server that speaks as it
// does) that any number of processes share. An admission is decided on the
// clock of that Redis by one script; clocks of the processes do not matter.
// Admissions that are asked for at the same time share trips, and what is known
// to be refused is refused without one (see DenialTTL).
//
// A bucket is the key <Prefix>{<subject>}:<policy>. It holds one integer and
// expires by itself once it is full. Subjects and policies are escaped, and
// hashed when longer than 64 bytes, so that no client can steer a slot, forge
// another key or fill memory with long ones.
//
// On a single Redis (also behind Sentinel) an admission is atomic whatever its
// keys. On a cluster and on a ring one script for each subject runs, in
// parallel; where one refuses, the others are refunded: for the time of a trip
// a subject may look more charged than it is, never less. Charges of one
// subject always share a slot, so that admissions of one subject stay atomic.
//
// A script is sent once. When its reply is lost, whether it charged is not
// known, and the error says so by being neither nil nor certain: at most one
// charge was made, never several. A Take whose context ends returns at once;
// what it sent is charged all the same.
type Redis struct {
	// Prefix begins every key; "" means "rl:". Set it before first use, without
	// braces, which would put all keys into one slot.
	Prefix string

	// Timeout is the longest that a call takes, whatever the client's own
	// settings; 0 means 50 ms, and less is an error. After it Take returns an
	// error that wraps [context.DeadlineExceeded]. Set it before first use.
	Timeout time.Duration

	// DenialTTL is how long a denial is cached: a key that Redis has denied is
	// denied without asking Redis again. What empties a bucket from elsewhere (a
	// refund or a lower limit in another process, a flush, a failover) is noticed
	// that much later at most. 0 means 1 s, and less is an error. Set it before
	// first use.
	DenialTTL time.Duration

	// NoDenialCache asks Redis about every admission. Set it before first use.
	NoDenialCache bool

	// Logger gets a line for each problem with Redis when it begins, every five
	// minutes while it lasts, and one when an outage that was logged is over.
	// Lines are at level ERROR for a set-up that Redis refuses, such as a wrong
	// password, otherwise WARN, with an attribute code that
	// docs/troubleshooting.md explains. Nil means [slog.Default]. Set it before
	// first use.
	Logger *slog.Logger

	client  redis.UniversalClient
	owned   bool    // Close closes the client
	dials   *dialer // of an owned client
	log     diag.Log
	once    sync.Once
	invalid error // what is wrong with the fields
	mirror  *mirror
	only    *lane       // of a single server
	prompt  bool        // the client returns by a context's deadline
	lanes   sync.Map    // of several: server: *lane
	routed  atomic.Bool // the cluster's topology is known

	reloaded atomic.Int64 // when it was looked up, by the mirror's clock
	counters
}

// NewRedis returns a store on a client of the caller's: a [redis.Client] (also
// one made for Sentinel), a [redis.ClusterClient] or a [redis.Ring]. The
// client's own retries do not apply to the script. [Options] has settings that
// fit. With TLS, Protocol must be 2 unless Timeout is well above 50 ms: under
// RESP3, its default, go-redis 9.23 may wait that long on a new connection; the
// store logs a warning then. MinIdleConns of 2, on a cluster or ring with
// PipelinePoolSize -1, keeps dials out of calls. ContextTimeoutEnabled and a
// PoolTimeout within Timeout save a lone caller a switch of goroutines.
func NewRedis(client redis.UniversalClient) *Redis {
	return &Redis{client: client}
}

const (
	defaultPrefix    = "rl:"
	defaultTimeout   = 50 * time.Millisecond
	defaultDenialTTL = time.Second
)

// Close releases what [Open] has opened. A client given to [NewRedis] stays
// open.
func (r *Redis) Close() error {
	if !r.owned {
		return nil
	}
	return r.client.Close()
}

// Take implements [Store].
func (r *Redis) Take(ctx context.Context, charges []Charge) (allowed bool, err error) {
	if err := r.apply(ctx, charges, false); err != nil {
		return false, err
	}
	return admitted(charges), nil
}

// Refund implements [Store].
func (r *Redis) Refund(ctx context.Context, charges []Charge) error {
	return r.apply(ctx, charges, true)
}

// apply makes a ride of the charges. The words of this package's Redis half: an
// admission is a [ride], its charges are the fares; rides board the [lane] of
// their server; a driver sends those that wait there as a [batch], which is one
// [script] on a single Redis; the answers go to the rides, and to the [mirror],
// which answers the next ride on a refused key at once. A [breaker] keeps rides
// off a server that has failed, a [watchdog] answers those that it leaves
// waiting.
func (r *Redis) apply(ctx context.Context, charges []Charge, refund bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(charges) == 0 {
		return nil
	}
	if r.once.Do(r.init); r.invalid != nil {
		return r.invalid
	}
	rd := newRide(refund)
	for i := range charges {
		rd.fares = append(rd.fares, fare{shadow: charges[i].Shadow})
		f := &rd.fares[i]
		var err error
		if f.hash, err = r.mirror.demand(&charges[i], refund, &f.demand); err != nil {
			rd.free()
			return err
		}
	}
	now := r.mirror.now()
	if r.mirror.refuse(rd, charges, now) {
		rd.free()
		return nil
	}
	if len(charges) > maxCharges {
		rd.free()
		return fmt.Errorf("gcra: redis: an admission of %d charges; want at most %d", len(charges), maxCharges)
	}
	for i := range charges {
		var buf [128]byte
		rd.fares[i].key = string(rediskit.AppendKey(buf[:0], r.prefix(), charges[i].Subject, charges[i].Policy))
	}
	rd.deadline = now + ticksIn(r.timeout())
	if r.only != nil || oneSubject(charges) {
		r.lane(rd.fares[0].key).board(rd, r.prompt && ctx.Done() == nil)
	} else {
		go r.split(rd)
	}
	if err := rd.wait(ctx); err != nil {
		return err // the ride is its lane's until it is answered
	}
	defer rd.free()
	if rd.err != nil {
		return rd.err
	}
	for i := range charges {
		f := &rd.fares[i]
		f.result(f.ahead, rd.taken(f), &charges[i].Result)
	}
	return nil
}

// maxCharges is the most charges of an admission: their demands are numbered
// by a byte.
const maxCharges = 256

func oneSubject(charges []Charge) bool {
	for i := range charges[1:] {
		if charges[i+1].Subject != charges[0].Subject {
			return false
		}
	}
	return true
}

func (r *Redis) init() {
	switch {
	case isNil(r.client):
		r.invalid = errors.New("gcra: redis: the client is nil; want one, see NewRedis and Open")
	case strings.ContainsAny(r.Prefix, "{}"):
		r.invalid = fmt.Errorf("gcra: redis: prefix is %q; want one without braces", r.Prefix)
	case r.Timeout < 0:
		r.invalid = fmt.Errorf("gcra: redis: timeout is %v; want 0 (%v) or more", r.Timeout, defaultTimeout)
	case r.DenialTTL < 0:
		r.invalid = fmt.Errorf("gcra: redis: DenialTTL is %v; want 0 (%v) or more, or NoDenialCache", r.DenialTTL, defaultDenialTTL)
	}
	keep := r.DenialTTL
	if keep == 0 {
		keep = defaultDenialTTL
	}
	if r.NoDenialCache {
		keep = -1
	}
	r.mirror = newMirror(keep)
	r.log.Logger = r.Logger
	if r.invalid == nil {
		r.warnRESP3()
	}
	if c, ok := r.client.(*redis.Client); ok && c != nil {
		r.only = r.newLane(c.Options().Addr)
		r.prompt = c.Options().ContextTimeoutEnabled && c.Options().PoolTimeout <= r.timeout()
	}
}

// isNil sees through an interface that holds a nil pointer.
func isNil(client redis.UniversalClient) bool {
	v := reflect.ValueOf(client)
	return client == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// Local implements [LocalStore]. It returns a store in this process that holds
// what Redis last said about each key, for decisions while Redis does not answer.
// Take from it by this process's share of each limit. Redis does not learn what
// is taken from it.
func (r *Redis) Local() Store {
	r.once.Do(r.init)
	return &r.mirror.Memory
}

func (r *Redis) prefix() string {
	if r.Prefix == "" {
		return defaultPrefix
	}
	return r.Prefix
}

func (r *Redis) logger() *slog.Logger {
	if r.Logger == nil {
		return slog.Default()
	}
	return r.Logger
}

func (r *Redis) timeout() time.Duration {
	if r.Timeout == 0 {
		return defaultTimeout
	}
	return r.Timeout
}
