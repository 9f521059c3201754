package send

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// told counts what a sender says of its requests, in the order in which it does.
type told struct{ before, learned, after atomic.Int64 }

func newSender(client redis.UniversalClient, told *told, after func(Result)) *Sender {
	return New(Config{
		Client: client, Prefix: "send:", Timeout: 20 * time.Second, Clock: buckets.NewClock(nil),
		Before: func(*Request) { told.before.Add(1) },
		Learn:  func(*Request, int64, int64) { told.learned.Add(1) },
		After: func(r Result) {
			after(r)
			told.after.Add(1)
		},
	})
}

// take sends charges of one of ten units. Its context can end, so that another goroutine sends them.
func take(t *testing.T, s *Sender, keys ...string) *Request {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const unit = int64(time.Hour / tat.Tick)
	charge := buckets.Charge{Params: tat.Params{Emission: unit, Capacity: 10 * unit, Room: 10 * unit, Top: 10 * unit, Inc: unit}}
	q := NewRequest(slices.Repeat([]buckets.Charge{charge}, len(keys)), false)
	q.Keys = append(q.Keys, keys...)
	if err := s.Send(ctx, q); err != nil {
		t.Error(err)
	}
	return q
}

// A caller has its answer, and what it says is learned, before the bookkeeping of its batch begins.
func TestCallerIsAnsweredBeforeTheBookkeeping(t *testing.T) {
	var told told
	answered := make(chan struct{})
	s := newSender(redistest.StartEmbedded(t), &told, func(Result) { <-answered })

	for i := range int64(3) {
		q := take(t, s, "send:{s}:p")
		if q.Err != nil || !q.Admitted || q.Charges[0].Ahead < i*int64(time.Hour/tat.Tick)*99/100 {
			t.Errorf("call %d: got %+v, %v; want it admitted, with %d hours taken before", i, q, q.Err, i)
		}
		if told.before.Load() != 1 || told.learned.Load() != 1 || told.after.Load() != 0 {
			t.Errorf("call %d: told %d before, %d learned, %d after; want 1, 1, 0", i, told.before.Load(), told.learned.Load(), told.after.Load())
		}
		answered <- struct{}{}
		redistest.Eventually(t, 20*time.Second, "the bookkeeping", func() bool { return told.after.Load() == 1 })
		told.before.Store(0)
		told.learned.Store(0)
		told.after.Store(0)
	}
}

// A caller that gets an error finds the breaker open if that has opened it.
func TestErrorFollowsTheBookkeeping(t *testing.T) {
	var told told
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}) // nothing listens there
	t.Cleanup(func() { client.Close() })
	s := newSender(client, &told, func(Result) {})

	for i := range int64(tripAfter) {
		if q := take(t, s, "send:{s}:p"); q.Err == nil || errors.Is(q.Err, ErrUnavailable) || told.after.Load() != i+1 {
			t.Errorf("call %d: got %v after the bookkeeping of %d; want an error of the call, after that of %d", i, q.Err, told.after.Load(), i+1)
		}
	}
	if q := take(t, s, "send:{s}:p"); !errors.Is(q.Err, ErrUnavailable) {
		t.Errorf("got %v; want ErrUnavailable", q.Err)
	}
}

// A request of two subjects waits while the server stalls, and is divided when its turn comes. Its parts keep
// its deadline, and their turn comes before 1,400 younger requests'.
func TestPartsAreNotLate(t *testing.T) {
	for _, end := range []time.Duration{17 * time.Second, 17400 * time.Millisecond, 25 * time.Second} {
		bubble(t, func(t *testing.T, s *Sender, calls *calls) { partsAreNotLate(t, s, calls, end) })
	}
}

func partsAreNotLate(t *testing.T, s *Sender, calls *calls, end time.Duration) {
	calls.end = []time.Duration{17 * time.Second, end}
	s.only.single.Settle(redisstats.BySubject, 0)

	go take(t, s, "send:{a}:p")
	synctest.Wait()
	go take(t, s, "send:{b}:p")
	synctest.Wait()
	took := twoSubjects(t, s)
	time.Sleep(16 * time.Second)
	for i := range 1400 {
		go take(t, s, fmt.Sprintf("send:{%d}:p", i))
	}

	if d := <-took; d > s.Timeout {
		t.Errorf("answered after %v; want at most %v", d, s.Timeout)
	}
}

// A server becomes a cluster, and the request that finds out is divided while another batch is in flight. Its parts
// wait for no younger request.
func TestPartsOfARequestSentAgainAreNotLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *Sender, calls *calls) {
		calls.end = []time.Duration{18 * time.Second}
		calls.err = serverError("CROSSSLOT Keys in request don't hash to the same slot")
		s.only.single.Settle(redisstats.OneKeyspace, 0)

		took := twoSubjects(t, s)
		time.Sleep(16 * time.Second)
		go take(t, s, "send:{a}:p")
		synctest.Wait()
		go take(t, s, "send:{b}:p")

		if d := <-took; d > s.Timeout {
			t.Errorf("answered after %v; want at most %v", d, s.Timeout)
		}
	})
}

// The context of a call ends at the deadline, and not before, for a client that bounds calls. Any other client may
// finish its dial and its handshake for later calls.
func TestContextOfACall(t *testing.T) {
	for _, bounds := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *Sender, calls *calls) {
			s.inline = bounds
			var ctx context.Context
			calls.seen = func(c context.Context) { ctx = c }
			calls.end = []time.Duration{2 * s.Timeout}
			go take(t, s, "send:{a}:p")

			time.Sleep(s.Timeout - 1)
			synctest.Wait()
			if err := ctx.Err(); err != nil {
				t.Errorf("bounds calls %v: got %v before the deadline; want none", bounds, err)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if ended := errors.Is(ctx.Err(), context.DeadlineExceeded); ended != bounds || (ctx.Done() != nil) != bounds {
				t.Errorf("bounds calls %v: got %v at the deadline; want that it ends: %v", bounds, ctx.Err(), bounds)
			}
		})
	}
}

// Replies come just before the deadline, at it and just after it. Each request has one answer or one error, is learned once
// for each time that it is sent, and no batch is used again while it expires.
func TestRepliesAtTheDeadline(t *testing.T) {
	for _, bounds := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *Sender, calls *calls) {
			s.inline = bounds
			var sent, learned atomic.Int64
			s.Before = func(*Request) { sent.Add(1) }
			s.Learn = func(*Request, int64, int64) { learned.Add(1) }
			calls.end = make([]time.Duration, 1<<16)
			calls.err = serverError("NOPERM this user has no permissions")
			calls.seen = func(ctx context.Context) {
				deadline, _ := ctx.Deadline()
				time.Sleep(time.Until(deadline) + time.Duration(rand.IntN(5)-2)*tat.Tick)
			}

			var callers sync.WaitGroup
			for i := range 16 {
				callers.Go(func() {
					for j := range 500 {
						q := NewRequest([]buckets.Charge{{Params: tat.Params{Emission: 1, Capacity: 1, Room: 1, Top: 1, Inc: 1}}}, false)
						q.Keys = append(q.Keys, fmt.Sprintf("send:{%d}:p", i*j%7))
						if err := s.Send(context.Background(), q); err != nil || q.Err == nil {
							t.Errorf("got %v, %v; want an error of the call", err, q.Err)
						}
						if errors.Is(q.Err, ErrUnavailable) {
							time.Sleep(2 * minOpen)
						}
						q.Free()
						time.Sleep(time.Duration(rand.IntN(3)) * tat.Tick)
					}
				})
			}
			callers.Wait()
			time.Sleep(s.Timeout)
			synctest.Wait()
			if sent.Load() != learned.Load() || sent.Load() < 100 || s.only.inFlight != 0 || len(s.only.waiting) != 0 {
				t.Errorf("got %d sent, %d learned, %d senders, %d waiting; want at least 100 sent, as many learned, and no more", sent.Load(), learned.Load(), s.only.inFlight, len(s.only.waiting))
			}
		})
	}
}

// Redis is 5 ms away, 10,000 requests come a second, and many batches are in flight when it pauses. The breaker opens if that
// lasts three Timeouts, and not before.
func TestPausesAndTheBreaker(t *testing.T) {
	const distance, timeout = 5 * time.Millisecond, 50 * time.Millisecond
	for _, row := range []struct {
		pause time.Duration
		opens bool
	}{{timeout * 12 / 10, false}, {2 * timeout, false}, {3*timeout + distance, true}} {
		bubble(t, func(t *testing.T, s *Sender, calls *calls) {
			s.Timeout = timeout
			s.only.single.Settle(redisstats.OneKeyspace, 0)
			var opened atomic.Bool
			s.After = func(r Result) {
				if r.Open {
					opened.Store(true)
				}
			}

			var inFlight, most atomic.Int64
			begin := time.Now().Add(2 * time.Second)
			end := begin.Add(row.pause)
			calls.answers = func(ctx context.Context) error {
				most.Store(max(most.Load(), inFlight.Add(1)))
				defer inFlight.Add(-1)
				time.Sleep(distance)
				deadline, _ := ctx.Deadline()
				if now := time.Now(); now.After(begin) && now.Before(end) {
					time.Sleep(min(time.Until(end), time.Until(deadline)))
				}
				return ctx.Err()
			}

			for i := range 25_000 {
				go take(t, s, fmt.Sprintf("send:{%d}:p", i%1000))
				time.Sleep(100 * time.Microsecond)
			}
			if opened.Load() != row.opens || most.Load() < maxWindow {
				t.Errorf("a pause of %v: opened is %v, with up to %d in flight; want %v, and %d", row.pause, opened.Load(), most.Load(), row.opens, maxWindow)
			}
		})
	}
}

// How many batches are in flight at a distance depends on the client's pool: half of it, if it is dialled ahead for all
// commands, and if there are connections beside those in use.
func TestInFlightByPool(t *testing.T) {
	for name, row := range map[string]struct {
		pool redis.Options
		most int64
	}{
		"large":               {redis.Options{PoolSize: 100, MinIdleConns: 100, PipelinePoolSize: -1}, maxWindow},
		"small":               {redis.Options{PoolSize: 10, MinIdleConns: 10, PipelinePoolSize: -1}, 5},
		"very small":          {redis.Options{PoolSize: 3, MinIdleConns: 3, PipelinePoolSize: -1}, minWindow},
		"not dialled ahead":   {redis.Options{PoolSize: 100, PipelinePoolSize: -1}, minWindow},
		"apart for pipelines": {redis.Options{PoolSize: 100, MinIdleConns: 100}, minWindow},
		"four connections":    {redis.Options{PoolSize: 100, MinIdleConns: 4, PipelinePoolSize: -1}, 4},
	} {
		bubbleOn(t, row.pool, func(t *testing.T, s *Sender, calls *calls) {
			s.only.single.Settle(redisstats.OneKeyspace, 0)
			var inFlight, most atomic.Int64
			calls.answers = func(context.Context) error {
				most.Store(max(most.Load(), inFlight.Add(1)))
				defer inFlight.Add(-1)
				time.Sleep(5 * time.Millisecond)
				return nil
			}
			for i := range 40_000 {
				go take(t, s, fmt.Sprintf("send:{%d}:p", i%1000))
				time.Sleep(25 * time.Microsecond)
			}
			if most.Load() != row.most {
				t.Errorf("a pool that is %s: got up to %d in flight; want %d", name, most.Load(), row.most)
			}
		})
	}
}

// bubble runs a test of a sender whose calls end when the test says, by a clock that does not wait.
func bubble(t *testing.T, test func(*testing.T, *Sender, *calls)) {
	bubbleOn(t, redis.Options{PoolSize: 100, MinIdleConns: 100, PipelinePoolSize: -1}, test)
}

func bubbleOn(t *testing.T, pool redis.Options, test func(*testing.T, *Sender, *calls)) {
	// What is in the pools belongs to one bubble.
	fresh := func() { requests, batches = sync.Pool{New: requests.New}, sync.Pool{New: batches.New} }
	fresh()
	defer fresh()

	synctest.Test(t, func(t *testing.T) {
		pool.Dialer = func(context.Context, string, string) (net.Conn, error) { conn, _ := net.Pipe(); return conn, nil }
		pool.MaxRetries = -1
		pool.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // their goroutines outlive the client
		client := redis.NewClient(&pool)
		defer client.Close()
		calls := &calls{begin: time.Now()}
		client.AddHook(calls)

		var told told
		test(t, newSender(client, &told, func(Result) {}), calls)
		time.Sleep(time.Minute)
	})
}

// twoSubjects says how long a request of two subjects has taken.
func twoSubjects(t *testing.T, s *Sender) <-chan time.Duration {
	took, begin := make(chan time.Duration, 1), time.Now()
	go func() {
		take(t, s, "send:{c}:p", "send:{d}:p")
		took <- time.Since(begin)
	}()
	synctest.Wait()
	return took
}

// calls is a hook in place of Redis. The first calls end at these times after begin and with err, the
// others at their deadlines.
type calls struct {
	begin time.Time
	end   []time.Duration
	err   error
	seen  func(context.Context) // if not nil, gets the context of each
	n     atomic.Int64

	answers func(context.Context) error // if not nil, takes the place of all that: nil is an answer that admits
}

func (c *calls) call(ctx context.Context) error {
	if c.answers != nil {
		return c.answers(ctx)
	}
	if c.seen != nil {
		c.seen(ctx)
	}
	if n := int(c.n.Add(1)); n <= len(c.end) {
		time.Sleep(c.end[n-1] - time.Since(c.begin))
		return c.err
	}
	deadline, _ := ctx.Deadline()
	time.Sleep(time.Until(deadline))
	return context.DeadlineExceeded
}

func (*calls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *calls) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		cmd.SetErr(c.call(ctx))
		if cmd.Err() == nil {
			cmd.(rediskit.Once).SetVal(slices.Repeat([]any{int64(0)}, cmd.Args()[2].(int)))
		}
		return cmd.Err()
	}
}

func (c *calls) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := c.call(ctx)
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

// A serverError is an error that a server has answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}
