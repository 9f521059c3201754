// Package redisstore keeps limits in Redis, 6.2 or newer, or a compatible server, for any number of
// processes. The limits also hold while Redis is away.
//
// While Redis answers, a script decides about an admission in one round trip, by the clock of Redis: it
// makes all charges or none; on a cluster a script does so for each subject, see [Store]. Admissions that arrive while calls are under way go together in the next,
// so Redis does little for each. A denial that follows from an earlier answer takes no call. An
// admission that may have been charged is not sent again: if a reply is lost, it has been charged once
// or not at all.
//
// While Redis does not answer, Take returns an error within [Config].Timeout, and after several
// failures in a row at once. Package middleware then asks [Store.Local]. It goes on from the last
// answer of Redis and grants this server's share of each limit, an nth for n servers, which count each
// other in Redis. When Redis answers again, each server reports what it granted, and Redis charges it.
// An outage of all servers adds about one burst to a limit, not one for each server.
//
// Redis must keep its keys: one that it evicts or loses is a full bucket. SECURITY.md has the exact
// bounds and the settings of Redis.
package redisstore

// How a request travels:
//
// Take makes a request of the charges (store.go). If the cache of the last answers denies it, it is denied without a call
// (internal/known). Otherwise it is sent (internal/send), together with others: Redis decides in take.lua. Its answer is
// learned, its caller goes on, and then Store.after does the bookkeeping of the batch: health.go logs problems, stats.go
// counts, and reporter.go is woken. instances.go counts the servers, and publish.go says what their policies are.
//
// local.go decides while Redis does not answer. What it grants is kept in internal/outage, and reporter.go charges it in
// Redis later, with report.lua. ping.go checks the set-up. open.go and internal/redisclient make a client that fits.
//
// The four internal packages know nothing of this one, and known imports outage alone.

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/known"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/redisclient"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Store is a [gcra.Store] in Redis. A script decides about an admission, by the
// clock of Redis. Concurrent admissions may share a call, and known denials may be
// answered without one (see [Config].DenialTTL).
//
// A bucket is the key <Prefix>{<subject>}:<policy>, which ends with the calendar if it is of a
// quota, as in ~month15. Subjects and policies are escaped, and hashed if that makes them longer
// than 64 bytes. docs/stores.md has the other keys.
//
// With a [redis.Client] of a single Redis (also behind Sentinel) an admission is atomic whatever
// its keys, once the server has shown that it is one keyspace, see [redisstats.Kind]. Otherwise
// it is divided into one for each subject; if one of them is denied or fails, the others
// are refunded while Redis answers. Admissions of one subject are atomic.
//
// A Take or Refund that returns an error, as when the reply is lost or its context ends, may have
// been carried out, but never twice. Redis takes at most 256 charges in an admission.
//
// [New] and [Open] make a store; the zero value has no client.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration
	ttl     time.Duration
	dials   *redisclient.Dialer // nil if New has been given the client
	log     diag.Log

	clock     *buckets.Clock
	known     *known.Cache
	sender    *send.Sender
	reporter  *reporter
	counted   instances
	published publication
	healths   sync.Map // by server: *health
	counters
}

// New returns a store on the given client: a [redis.Client] (also one made for
// Sentinel), a [redis.ClusterClient] or a [redis.Ring]. [ClientOptions] has settings that fit:
//
//   - With TLS, Protocol must be 2 unless Timeout is well above 50 ms: under RESP3 go-redis may wait
//     that long on a new connection, and calls may never reach Redis.
//   - MinIdleConns of 2 with PipelinePoolSize -1 keeps most dials out of calls. Without both, at most two calls to a server
//     are under way, and a check at a distance takes up to two round trips.
//   - ContextTimeoutEnabled and a PoolTimeout within Timeout may save a lone caller of a
//     redis.Client a switch of goroutines. A hook of such a client must return when its context
//     ends, or this caller waits beyond Timeout.
//
// On a cluster or ring add hooks in OnNewNode of a [redis.ClusterClient] or in NewClient of
// [redis.RingOptions], or they do not see all commands.
//
// The error has a line for each mistake.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := errors.Join(rediskit.CheckClient("redisstore", client), cfg.check()); err != nil {
		return nil, err
	}
	return newStore(client, cfg, nil), nil
}

// newStore makes a store of a Config without mistakes.
func newStore(client redis.UniversalClient, cfg Config, dials *redisclient.Dialer) *Store {
	s := &Store{
		client:  client,
		prefix:  cmp.Or(cfg.Prefix, "rl:"),
		timeout: cmp.Or(cfg.Timeout, rediskit.DefaultTimeout),
		ttl:     max(cmp.Or(cfg.DenialTTL, defaultDenialTTL), 0),
		dials:   dials,
		log:     diag.Log{Logger: cfg.Logger},
		counted: instances{id: strconv.FormatUint(rand.Uint64()>>16, 36)},
	}
	s.published.limiters = make(map[any]func() string)
	s.compose(buckets.NewClock(nil))
	return s
}

// compose makes the parts of the store.
func (s *Store) compose(clock *buckets.Clock) {
	s.clock = clock
	s.reporter = newReporter(s)
	s.known = known.New(clock, s.ttl, &s.reporter.grants)
	s.sender = send.New(send.Config{
		Client: s.client, Prefix: s.prefix, Timeout: s.timeout, Clock: clock,
		Before: s.before, Learn: s.learn, After: s.after,
	})
}

// before notes that a request is sent.
func (s *Store) before(q *send.Request) {
	if q.Refund {
		s.known.RefundSent(q.Charges)
	}
}

// learn learns from a request that has come back from a call, before its caller goes on. sent is the time before the call.
func (s *Store) learn(q *send.Request, sent, now int64) {
	switch {
	case q.Refund:
		s.known.RefundAnswered(q.Charges)
	case q.Err == nil:
		s.known.Learn(q.Charges, q.Admitted, sent, now)
		s.markAfter(q.Charges, now)
	}
}

// after does the bookkeeping of a batch.
func (s *Store) after(r send.Result) {
	s.count(r)
	s.health(r.Server).note(r.Err, r.Open)
	if r.Err == nil {
		s.reporter.wake()
	}
}

// Close closes the client of a store that [Open] returned; what Local has granted and was
// not charged in Redis yet is not charged any more. For a store of [New] it does nothing:
// close the client yourself.
func (s *Store) Close() error {
	if s.dials == nil {
		return nil
	}
	s.reporter.close()
	return s.client.Close()
}

// Client returns the client and the prefix of the store, for others that keep something in the same
// Redis, as package fleet. Do not close the client of a store of [Open].
func (s *Store) Client() (client redis.UniversalClient, prefix string) { return s.client, s.prefix }

// ErrUnavailable is wrapped by the errors of calls that the circuit breaker did not send:
// Redis has failed several times in a row.
var ErrUnavailable = send.ErrUnavailable

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

	var few [4]buckets.Charge // a denial without a call allocates nothing
	admission := few[:]
	if len(charges) > len(few) {
		admission = make([]buckets.Charge, len(charges))
	}
	admission = admission[:len(charges)]
	for i := range charges {
		if err := s.known.Prepare(&charges[i], refund, &admission[i]); err != nil {
			return false, err
		}
	}
	if !refund && s.known.Deny(admission, charges) {
		s.denied.Add(1)
		return false, nil
	}

	q := send.NewRequest(admission, refund)
	for i := range charges {
		q.Keys = append(q.Keys, s.key(&charges[i], &q.Charges[i]))
	}
	if err := s.sender.Send(ctx, q); err != nil {
		return false, err // and the request may go on
	}

	defer q.Free()
	if q.Err != nil {
		return false, q.Err
	}
	for i := range charges {
		known.SetResult(&charges[i], &q.Charges[i], q.Admitted, refund)
	}
	return q.Admitted, nil
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
