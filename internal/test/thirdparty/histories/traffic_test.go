package histories

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const (
	policies  = 3
	subjects  = 3
	processes = 4
	callers   = 2 // of each process
)

// policyList are the policies of all subjects. Charges of the second are noticed to the
// end of a history, as it refills slowly. The period of the third does not end soon.
var policyList = [policies]middleware.Policy{
	{Name: "rate", Limit: gcra.PerSecond(100).WithBurst(10)},
	{Name: "debt", Limit: gcra.PerMinute(60).WithBurst(40), MaxDebt: 5},
	{Name: "quota", Limit: gcra.Quota(150, gcra.Monthly.From((time.Now().UTC().Day()+13)%28+1))},
}

var policyOf = map[string]int{"rate": 0, "debt": 1, "quota": 2}

// A round is what a process has to do.
type round struct {
	URL    string
	Client int
	Round  int64
	Cached bool // the store has its denial cache
	Calls  int
	Within time.Duration // then the round ends with fewer calls

	Timeout time.Duration // of the store
	Plant   *plant
}

// A result is what it has done.
type result struct {
	Operations []operation
	Planted    int64
}

// client is a process: it does each round that it reads, and writes the result.
func client(_ string, in io.Reader, out io.Writer) error {
	rounds, results := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r round
		if err := rounds.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}

		done, err := r.do()
		if err != nil {
			return err
		}
		if err := results.Encode(done); err != nil {
			return err
		}
	}
}

func (r *round) do() (*result, error) {
	cfg := redisstore.Config{Timeout: r.Timeout, Logger: slog.New(slog.DiscardHandler)}
	if !r.Cached {
		cfg.DenialTTL = -1
	}
	store, err := redisstore.Open(r.URL, cfg)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	rec := &recorder{Store: store, client: r.Client, plant: r.Plant}

	list := policyList
	for i := range list {
		list[i].Key = func(r *http.Request) (string, error) { return r.Host, nil }
		list[i].Cost = func(r *http.Request) int64 { return r.ContentLength }
		list[i].OnFailure = middleware.FailClosed
	}

	limiter, err := middleware.New(middleware.Config{Store: rec, Logger: cfg.Logger}, list[:]...)
	if err != nil {
		return nil, err
	}

	end := time.Now().Add(r.Within)
	var request atomic.Int64
	request.Store(r.Round * 1_000_000)

	redistest.Together(callers, func(int) {
		for rec.len() < r.Calls && time.Now().Before(end) {
			rec.call(limiter, request.Add(1))
			time.Sleep(rand.N(4 * time.Millisecond)) // the rate of calls
		}
	})

	done := &result{Operations: rec.ops}
	if r.Plant != nil {
		done.Planted = r.Plant.planted.Load()
	}
	return done, nil
}

// call makes one random call. Its error is in the record.
func (r *recorder) call(limiter *middleware.Limiter, request int64) {
	ctx, subject := context.Background(), subject(rand.IntN(subjects))
	p := &policyList[rand.IntN(policies)]
	c := gcra.Charge{Subject: subject, Policy: p.Name, Limit: p.Limit, Cost: 1 + rand.Int64N(3), MaxDebt: p.MaxDebt}
	switch rand.IntN(8) {
	case 0:
		_, _ = gcra.Peek(ctx, r, c)
	case 1:
		if took, err := gcra.Take(ctx, r, c); err == nil && took.Allowed {
			_ = r.Refund(ctx, []gcra.Charge{c})
		}
	case 2, 3:
		r.settle(limiter, subject, request)
	default:
		_, _ = gcra.Take(ctx, r, c)
	}
}

// settle makes a request of all policies and settles it once or twice.
func (r *recorder) settle(limiter *middleware.Limiter, subject string, request int64) {
	ctx := context.WithValue(context.Background(), requestKey{}, request)
	q := (&http.Request{Method: http.MethodGet, Host: subject, ContentLength: 2}).WithContext(ctx)
	d := limiter.Decide(q)
	if !d.Allowed {
		return
	}

	for range 1 + rand.IntN(2) {
		cost := rand.Int64N(6)
		err := d.Settle(ctx, cost, policyList[0].Name, policyList[1].Name, policyList[2].Name)
		o := operation{Kind: settle, Request: request, Cost: cost}
		var short *middleware.SettleError
		if errors.As(err, &short) {
			o.Missing = short.Missing
		}

		o.Lost = err != nil && short == nil || errors.Is(err, redisstore.ErrUnavailable)
		r.add(o)
	}
}
