// Package redisstore is the [gcra.Store] in Redis, 6.2 or newer, or a compatible
// server. Any number of processes share it.
package redisstore

// How a request travels:
//
// Take makes a request of the charges (store.go, request.go). If the denial cache
// knows that Redis would deny it, it is denied without a call (denials.go).
// Otherwise it goes to the batcher of its server (batcher.go, cluster.go), which
// sends waiting requests as one batch (batch.go), in one call of take.lua or in one
// for each subject (script.go). way.go decides that by what the server has shown;
// keytest.go tests it. Each server has a circuit breaker, so that calls do not wait for
// one that has failed (breaker.go). health.go logs problems, stats.go counts, and
// ping.go checks the set-up. open.go and dial.go make a client that fits, resp3.go
// warns of one that does not. local.go decides while Redis does not answer, and
// instances.go counts the servers that do so; internal/outage keeps what they have granted,
// and reporter.go charges it in Redis later (report.go).

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Store is a [gcra.Store] in Redis. A script decides about an admission, by the
// clock of Redis; the clocks of the processes do not matter. Concurrent admissions
// share calls, and known denials are answered without one (see [Config].DenialTTL).
//
// A bucket is the key <Prefix>{<subject>}:<policy>. It holds one integer and
// expires within 10 seconds after it is full. Subjects and policies are escaped, and
// hashed if longer than 64 bytes, so that no client can choose a slot, forge another
// key or fill memory with long ones. Four kinds of keys are no buckets: <Prefix>{instances}
// of Local, <Prefix>{ping} of Ping, <Prefix>{~test...} of the test of a server's kind, and
// <bucket>~paid.<id>, for a minute after what Local has granted was charged.
//
// The key of a quota ends with its calendar, <Prefix>{<subject>}:<policy>~month15, and
// expires within 10 seconds after its period. Which period is current is decided by the
// clock of Redis: a request names the periods around the time that the store has learned
// from answers, and if Redis finds itself in none of them it is asked once more.
//
// On a single Redis (also behind Sentinel) an admission is atomic whatever its
// keys, once the server has shown that it is one keyspace, see [gcra.ServerKind]. Before that,
// on one endpoint of a cluster, on a cluster and on a ring it is divided into one for each subject, in
// parallel; if one is denied, the others are refunded: for the time of a call a
// subject may look more charged than it is, never less. Charges of one subject always share a
// slot, so admissions of one subject stay atomic.
//
// Take and Refund send their script once. If its reply is lost, they return an error; the
// charge or the refund may have been made, but never twice. A Take whose context ends
// returns at once; what it sent is charged all the same.
//
// [New] and [Open] make a store; the zero value has no client.
type Store struct {
	client   redis.UniversalClient
	prefix   string
	timeout  time.Duration
	dials    *dialer // of a client that Open has made; otherwise nil
	log      diag.Log
	clock    *buckets.Clock
	denials  *denialCache
	reporter reporter
	only     *batcher     // of a single server
	inline   bool         // its client returns by a context's deadline
	batchers sync.Map     // of several servers, by address
	routed   atomic.Bool  // the cluster's topology is known
	reloaded atomic.Int64 // when the topology was looked up
	counted  instances
	counters
}

// New returns a store on the given client: a [redis.Client] (also one made for
// Sentinel), a [redis.ClusterClient] or a [redis.Ring]. The client's own retries
// do not apply to the script. [ClientOptions] has settings that fit. With TLS, Protocol
// must be 2 unless Timeout is well above 50 ms: under RESP3, the default, go-redis
// 9.23 may wait that long on a new connection; the store then logs a warning.
// Batches on a cluster or ring go to the clients of its nodes: add hooks in their
// OnNewNode, or they do not see all commands.
// MinIdleConns of 2 with PipelinePoolSize -1 keeps dials out of calls: the first
// batches, and those for several subjects of most kinds of servers, are pipelines. ContextTimeoutEnabled and a PoolTimeout within Timeout save a lone
// caller a switch of goroutines.
//
// The error has a line for each mistake in the Config.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := errors.Join(rediskit.CheckClient("redisstore", client), cfg.check()); err != nil {
		return nil, err
	}
	return newStore(client, cfg, nil), nil
}

// newStore makes a store of a Config without mistakes. dials is nil unless [Open] has made the client.
func newStore(client redis.UniversalClient, cfg Config, dials *dialer) *Store {
	s := &Store{
		client:  client,
		prefix:  cmp.Or(cfg.Prefix, "rl:"),
		timeout: cmp.Or(cfg.Timeout, rediskit.DefaultTimeout),
		dials:   dials,
		log:     diag.Log{Logger: cfg.Logger},
		clock:   buckets.NewClock(nil),
	}
	s.reporter = reporter{store: s, suffix: "~paid." + strconv.FormatUint(rand.Uint64(), 36), answered: make(chan struct{}, 1)}
	s.denials = newDenialCache(s.clock, max(cmp.Or(cfg.DenialTTL, defaultDenialTTL), 0), &s.reporter.grants)
	s.counted.init()

	s.warnRESP3()
	if dials == nil { // a client of Open has the settings, unless its URL or the Timeout says otherwise
		rediskit.HintSettings(&s.log, client, s.timeout)
	}

	if c, ok := client.(*redis.Client); ok {
		s.only = s.newBatcher(c.Options().Addr)
		s.inline = rediskit.BoundsCalls(c, s.timeout)
	}
	return s
}

// Close closes the client of a store that [Open] returned. What Local has granted and
// Redis does not know yet is not charged any more. A client given to [New] stays open, and
// Close does nothing.
func (s *Store) Close() error {
	if s.dials == nil {
		return nil
	}
	s.reporter.close()
	return s.client.Close()
}

// Take implements [gcra.Store].
func (s *Store) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	return s.apply(ctx, charges, false)
}

// Refund implements [gcra.Store].
func (s *Store) Refund(ctx context.Context, charges []gcra.Charge) error {
	_, err := s.apply(ctx, charges, true)
	return err
}

// apply makes a request of the charges and waits for its answer.
func (s *Store) apply(ctx context.Context, charges []gcra.Charge, refund bool) (admitted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if len(charges) == 0 {
		return true, nil
	}
	var few [4]op // a denial from the cache allocates nothing
	ops := few[:]
	if len(charges) > len(few) {
		ops = make([]op, len(charges))
	}
	ops = ops[:len(charges)]
	for i := range charges {
		if err := s.denials.prepare(&charges[i], refund, &ops[i].Charge); err != nil {
			return false, err
		}
	}
	if !refund && s.denials.deny(ops, charges) {
		return false, nil
	}
	if err := checkSize(ops); err != nil {
		return false, err
	}
	q := newRequest(ops, refund)
	for i := range charges {
		if charges[i].Limit.IsQuota() {
			q.at = s.clock.Calendar()
		}
		q.ops[i].key = s.key(&charges[i], &q.ops[i].Charge)
	}
	q.deadline = s.clock.Now() + tat.Ticks(s.timeout)
	if s.only != nil || oneSubject(charges) {
		s.batcher(q).submit(q, s.inline && ctx.Done() == nil)
	} else {
		go s.split(q)
	}
	if err := q.wait(ctx); err != nil {
		return false, err
	}
	defer q.free()
	if q.err != nil {
		return false, q.err
	}
	setResults(charges, q.ops, q.admitted, refund)
	return q.admitted, nil
}

// key is the key of a charge's bucket.
func (s *Store) key(charge *gcra.Charge, c *buckets.Charge) string {
	var buf [128]byte
	key := rediskit.AppendKey(buf[:0], s.prefix, charge.Subject, charge.Policy)
	if c.Periods != nil {
		key = append(key, c.Periods.Suffix...)
	}
	return string(key)
}

// maxCharges is the most charges of an admission: a byte is the index of their
// params.
const maxCharges = 256

// checkSize returns an error for more ops than fit a call, or more different periods: the
// current one of each calendar, and those that a refund names.
func checkSize(ops []op) error {
	switch n := len(ops); {
	case n <= maxPeriods:
		return nil
	case n > maxCharges:
		return fmt.Errorf("redisstore: an admission of %d charges; want at most %d", n, maxCharges)
	}
	type period struct {
		*tat.Periods
		end int64
	}
	different := make(map[period]bool)
	for i := range ops {
		if o := &ops[i]; o.Periods != nil {
			different[period{o.Periods, o.Refunds}] = true
		}
	}
	if n := len(different); n > maxPeriods {
		return fmt.Errorf("redisstore: quotas of %d periods in one call; want at most %d", n, maxPeriods)
	}
	return nil
}

func oneSubject(charges []gcra.Charge) bool {
	for i := range charges[1:] {
		if charges[i+1].Subject != charges[0].Subject {
			return false
		}
	}
	return true
}
