package rpctest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// has reports whether the answer has each of the fields "Name: value" once, and those without a value
// not at all.
func (a Answer) has(lines ...string) bool {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if got := a.Fields.Values(name); len(got) > 1 || strings.Join(got, "") != value {
			return false
		}
	}
	return true
}

// denies returns the wait of RetryInfo, 0 if there is none, and the subjects of QuotaFailure.
func (a Answer) denies(t *testing.T) (wait time.Duration, violations []string) {
	t.Helper()
	for _, d := range a.Details {
		var message struct {
			RetryDelay *struct {
				Seconds int64 `json:"seconds"`
				Nanos   int64 `json:"nanos"`
			} `json:"retry_delay"`
			Violations []struct {
				Subject string `json:"subject"`
			} `json:"violations"`
		}
		text, err := json.Marshal(d)
		if err == nil {
			err = json.Unmarshal(text, &message)
		}
		if err != nil {
			t.Fatal(err)
		}

		switch {
		case message.RetryDelay != nil:
			wait = time.Duration(message.RetryDelay.Seconds)*time.Second + time.Duration(message.RetryDelay.Nanos)
		case message.Violations != nil:
			for _, v := range message.Violations {
				violations = append(violations, v.Subject)
			}
		default:
			t.Errorf("got a detail %T", d)
		}
	}
	return wait, violations
}

// denial tests what a client gets of an allowed call and of a denied one.
func denial(t *testing.T, serve serve, procedure string) {
	t.Helper()
	call := serve(t, nil, limiter(t, doubles.NewStore(),
		middleware.Policy{Name: "minute", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(1)},
		middleware.Policy{Name: "hour", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1)},
		middleware.Policy{Name: "day", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(100)}))

	a := call(t.Context(), procedure, nil)
	hour := []string{"RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Policy: 1;w=3600"}
	if a.Code != ok || !a.has(hour...) || !a.has("Retry-After: ", "Cache-Control: ") {
		t.Errorf("%s, allowed: got %+v; want the fields of hour", procedure, a)
	}

	a = call(t.Context(), procedure, nil)
	if a.Code != resourceExhausted || !strings.HasSuffix(a.Message, "The call was denied because a rate limit is used up.") ||
		!a.has(hour...) || !a.has("RateLimit-Reset: 3600", "Retry-After: 3600") {
		t.Errorf("%s, denied: got %+v; want resource exhausted, and the fields of hour", procedure, a)
	}
	if wait, violations := a.denies(t); wait != time.Hour || !slices.Equal(violations, []string{"minute", "hour"}) {
		t.Errorf("%s, denied: got RetryInfo %v, violations %v; want an hour, minute and hour", procedure, wait, violations)
	}
}

// failClosed tests that a client does not get the error of the store.
func failClosed(t *testing.T, serve serve, procedure string) {
	t.Helper()
	l := limiter(t, doubles.Down{},
		middleware.Policy{Name: "minute", Key: keyfunc.Const("k"), Limit: gcra.PerMinute(1), OnFailure: middleware.FailClosed})
	a := serve(t, nil, l)(t.Context(), procedure, nil)
	wait, violations := a.denies(t)
	leaks := strings.Contains(fmt.Sprint(a), "10.0.0.7")
	if a.Code != unavailable || wait != time.Second || violations != nil || !a.has("Retry-After: 1") || leaks {
		t.Errorf("%s: got %+v; want unavailable for a second, without the cause", procedure, a)
	}
}

// handlerFails tests that a call which the handler fails has the fields too.
func handlerFails(t *testing.T, serve serve, procedure string) {
	t.Helper()
	fails := func(context.Context, func() error) error { return errors.New("no such thing") }
	call := serve(t, fails, limiter(t, doubles.NewStore(),
		middleware.Policy{Name: "minute", Key: keyfunc.Const("k"), Limit: gcra.PerMinute(5)}))
	for _, want := range []string{"RateLimit-Remaining: 4", "RateLimit-Remaining: 3"} {
		if a := call(t.Context(), procedure, nil); a.Code != unknown || !a.has(want) {
			t.Errorf("%s: got %+v; want the error of the handler, %s", procedure, a, want)
		}
	}
}

// stacked tests that two limiters write one set of fields, the tighter one's.
func stacked(t *testing.T, serve serve, procedure string) {
	t.Helper()
	store := doubles.NewStore()
	call := serve(t, nil,
		limiter(t, store, middleware.Policy{Name: "outer", Key: keyfunc.Const("k"), Limit: gcra.PerMinute(9)}),
		limiter(t, store, middleware.Policy{Name: "inner", Key: keyfunc.Const("k"), Limit: gcra.PerMinute(1)}))
	for _, want := range []uint32{ok, resourceExhausted} {
		if a := call(t.Context(), procedure, nil); a.Code != want || !a.has("RateLimit-Limit: 1", "RateLimit-Remaining: 0") {
			t.Errorf("%s: got %+v; want code %d and the fields of inner", procedure, a, want)
		}
	}
}

// deadline tests that a call is held back no longer than its client waits.
func deadline(t *testing.T, serve serve, procedure string) {
	t.Helper()
	call := serve(t, nil, limiter(t, doubles.NewStore(),
		middleware.Policy{Name: "hour", Key: keyfunc.Const("k"), Limit: gcra.PerHour(1), MaxDelay: 2 * time.Hour}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, want := range []uint32{ok, resourceExhausted} {
		if a := call(ctx, procedure, nil); a.Code != want {
			t.Errorf("%s: got %+v; want code %d at once", procedure, a, want)
		}
	}
}

// spend tests that the handler of a stream charges its messages.
func spend(t *testing.T, serve serve, procedure string) {
	t.Helper()
	messages := func(ctx context.Context, send func() error) error {
		for range 3 {
			if err := errors.Join(middleware.FromContext(ctx).Spend(ctx, 1, "hour"), send()); err != nil {
				return err
			}
		}
		return nil
	}
	store, policy := doubles.NewStore(), middleware.Policy{Name: "hour", Key: keyfunc.Const("k"), Limit: gcra.PerHour(5)}
	if a := serve(t, messages, limiter(t, store, policy))(t.Context(), procedure, nil); a.Code != ok || !a.has("RateLimit-Remaining: 4") {
		t.Errorf("%s: got %+v; want 4 left at the start", procedure, a)
	}
	r, err := gcra.Peek(t.Context(), store, gcra.Charge{Subject: "const:k", Policy: "hour", Limit: policy.Limit})
	if err != nil || r.Remaining != 1 {
		t.Errorf("%s, after a call and three messages: got %+v, %v; want the last of 5", procedure, r, err)
	}
}

// never tests a call that costs more than the limit ever allows.
func never(t *testing.T, serve serve, procedure string) {
	t.Helper()
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Logger: slog.New(slog.DiscardHandler)},
		middleware.Policy{Name: "minute", Key: keyfunc.Const("k"), Limit: gcra.PerMinute(1), Cost: func(*http.Request) int64 { return 2 }}))
	a := serve(t, nil, l)(t.Context(), procedure, nil)
	wait, violations := a.denies(t)
	if a.Code != resourceExhausted || wait != 0 || !a.has("Retry-After: ") || !slices.Equal(violations, []string{"minute"}) {
		t.Errorf("got %+v, violations %v; want no wait", a, violations)
	}
}

// bans tests that a banned client hears that it is banned.
func bans(t *testing.T, serve serve, procedure string) {
	t.Helper()
	banned := func(string) (middleware.Override, bool) {
		return middleware.Override{Banned: true, Until: time.Now().Add(time.Hour)}, true
	}
	for _, cfg := range []middleware.Config{
		{},
		{BanStatus: http.StatusForbidden}, // of a limiter that serves HTTP too
	} {
		cfg.Store = gcra.NewMemory()
		l := middleware.Must(middleware.New(cfg, middleware.Policy{Name: "p", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(5), Override: banned}))
		a := serve(t, nil, l)(t.Context(), procedure, nil)
		if a.Code != resourceExhausted || !strings.HasSuffix(a.Message, "The call was denied because its client is banned.") {
			t.Errorf("%+v: got %+v; want that the client is banned", cfg, a)
		}
	}
}

// heldBack tests that a call which ends while it is held back ends as its context says, and is charged, or
// clients could avoid charges.
func heldBack(t *testing.T, intercept func(context.Context, *middleware.Limiter) uint32) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var delays []time.Duration
		l := middleware.Must(middleware.New(middleware.Config{
			Store:   gcra.NewMemory(),
			Observe: func(_ *http.Request, d *middleware.Decision) { delays = append(delays, d.Delay) },
		}, middleware.Policy{Name: "hour", Key: keyfunc.Const("k"), Limit: gcra.PerHour(1), MaxDelay: 3 * time.Hour}))

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		for _, want := range []uint32{ok, canceled, canceled} { // the third arrives canceled
			if got := intercept(ctx, l); got != want {
				t.Errorf("got code %d; want %d", got, want)
			}
		}
		if want := []time.Duration{0, time.Hour, 119 * time.Minute}; !slices.Equal(delays, want) {
			t.Errorf("got delays %v; want %v, as the second call is charged", delays, want)
		}
	})
}
