package main

import (
	"context"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	echomw "github.com/labstack/echo/v4/middleware"
	sethvargo "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// The names of the contestants in memory that are not on Redis too.
const (
	httprateIn  = "httprate"
	sethvargoIn = "sethvargo"
	xTime       = "x_time_rate"
	echoV5Own   = "echo_v5's_own"
)

var inMemory = []contestant{
	{ours, func(_ deployment, l limit) (func() check, error) { return storeCaller(gcra.NewMemory(), l), nil }},
	{xTime, xTimeCaller},
	{sethvargoIn, sethvargoCaller},
	{throttledIn, func(_ deployment, l limit) (func() check, error) {
		limiter, err := newThrottledMemory(l)
		return throttledCaller(limiter), err
	}},
	{echoOwn, func(_ deployment, l limit) (func() check, error) { return shared(newEchoStore(l).Allow), nil }},
	{ululeIn, func(_ deployment, l limit) (func() check, error) {
		return ululeCaller(limiter.New(ululememory.NewStore(), ululeRate(l))), nil
	}},
	{httprateIn, httprateCaller},
	{clockAndLock, clockCaller},
}

// clockCaller does what any limiter in memory has to do.
func clockCaller(deployment, limit) (func() check, error) {
	var mu sync.Mutex
	var last time.Time
	return shared(func(string) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		last = time.Now()
		return !last.IsZero(), nil
	}), nil
}

// xTimeCaller is what many write themselves: a limiter of x/time for each key.
func xTimeCaller(_ deployment, l limit) (func() check, error) {
	var limiters sync.Map
	every := rate.Every(l.emission())
	return shared(func(subject string) (bool, error) {
		v, ok := limiters.Load(subject)
		if !ok {
			v, _ = limiters.LoadOrStore(subject, rate.NewLimiter(every, int(l.burst)))
		}
		return v.(*rate.Limiter).Allow(), nil
	}), nil
}

func newSethvargo(l limit) (sethvargo.Store, error) {
	return memorystore.New(&memorystore.Config{Tokens: uint64(l.burst), Interval: windowOf(l)})
}

func sethvargoCaller(d deployment, l limit) (func() check, error) {
	store, err := newSethvargo(l)
	if err != nil {
		return nil, err
	}
	d.cleanup(func() { _ = store.Close(context.Background()) })
	return shared(func(subject string) (bool, error) {
		_, _, _, ok, err := store.Take(context.Background(), subject)
		return ok, err
	}), nil
}

func newThrottledMemory(l limit) (*throttled.GCRARateLimiterCtx, error) {
	store, err := memstore.NewCtx(0) // no bound: what it does at its bound is another matter
	if err != nil {
		return nil, err
	}
	return newThrottled(store, l)
}

func newEchoStore(l limit) *echomw.RateLimiterMemoryStore {
	return echomw.NewRateLimiterMemoryStoreWithConfig(echomw.RateLimiterMemoryStoreConfig{
		Rate:      rate.Every(l.emission()),
		Burst:     int(l.burst),
		ExpiresIn: month,
	})
}

// httprateCaller asks httprate without a handler around it, and tells it to
// write no headers.
func httprateCaller(_ deployment, l limit) (func() check, error) {
	rl := httprate.NewRateLimiter(int(l.burst), windowOf(l), httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	request := newRequest()
	return func() check {
		w := newRecorder()
		return func(subject string) (bool, error) {
			return !rl.OnLimit(w, request, subject), nil
		}
	}, nil
}
