package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var five = gcra.PerMinute(5)

func TestAllOrNone(t *testing.T) {
	// A request that one policy denies costs the others nothing.
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "user", Key: key("u"), Limit: gcra.PerMinute(1)},
		middleware.Policy{Name: "all", Key: key("everybody"), Limit: five})
	for i, want := range []bool{true, false, false} {
		if d := l.Decide(get("/")); d.Allowed != want {
			t.Fatalf("request %d: got Allowed %t; want %t", i+1, d.Allowed, want)
		}
	}
	if got := left(t, store, "everybody", "all", five); got != 4 {
		t.Errorf("all: got %d left; want 4: one request passed", got)
	}
}

func TestDecision(t *testing.T) {
	minute, hour := gcra.PerMinute(1), gcra.PerHour(1)
	three := func(*http.Request) int { return 3 }
	for _, test := range []struct {
		name     string
		policies []middleware.Policy
		requests int
		allowed  bool
		status   int
		retry    time.Duration
		delay    time.Duration
	}{
		// The wait is that of the policy that denies longest.
		{"longest", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute}, {Name: "h", Key: key("k"), Limit: hour}},
			2, false, 429, time.Hour, 0},
		// No wait helps a cost above the burst, whatever the others say.
		{"never", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, Cost: three}, {Name: "h", Key: key("k"), Limit: five}},
			1, false, 429, 0, 0},
		// A shadow denies nobody, and its wait is nobody's.
		{"shadow", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, Shadow: true}, {Name: "h", Key: key("k"), Limit: five}},
			2, true, 200, 0, 0},
		{"shadow never", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, Shadow: true, Cost: three}, {Name: "h", Key: key("k"), Limit: hour}},
			2, false, 429, time.Hour, 0},
		// The delay is the longest that a policy asks for.
		{"delay", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, MaxDelay: time.Hour}, {Name: "h", Key: key("k"), Limit: hour, MaxDelay: 2 * time.Hour}},
			2, true, 200, 0, time.Hour},
		{"shadow's delay", []middleware.Policy{{Name: "m", Key: key("k"), Limit: minute, MaxDelay: time.Hour, Shadow: true}, {Name: "h", Key: key("k"), Limit: five}},
			2, true, 200, 0, 0},
		// The empty key is one bucket, never a way around.
		{"nobody", []middleware.Policy{{Name: "only", Key: key(""), Limit: minute}}, 2, false, 429, time.Minute, 0},
		// Nothing applies.
		{"skip", []middleware.Policy{{Name: "only", Key: key("k"), Limit: minute, Skip: func(*http.Request) bool { return true }}}, 9, true, 200, 0, 0},
		{"no limit", []middleware.Policy{{Name: "only", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { return gcra.Limit{} }}}, 9, true, 200, 0, 0},
		{"other route", []middleware.Policy{{Name: "only", Key: key("k"), Limit: minute, Routes: []string{"POST /login"}}}, 9, true, 200, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, _ := newStore()
			l := limiter(t, middleware.Config{Store: store}, test.policies...)
			var d middleware.Decision
			for range test.requests {
				d = l.Decide(get("/"))
			}
			if d.Allowed != test.allowed || d.Status() != test.status || d.RetryAfter != test.retry || d.Delay != test.delay || d.Err != nil {
				t.Errorf("got %t, %d, retry %v, delay %v, error %v; want %t, %d, %v, %v, none",
					d.Allowed, d.Status(), d.RetryAfter, d.Delay, d.Err, test.allowed, test.status, test.retry, test.delay)
			}
		})
	}
}

func TestNothingApplies(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five, Routes: []string{"/other"}})
	res, d := allow(l, get("/"))
	if d == nil || !d.Allowed || len(d.Results) != 0 || len(res.Header) != 0 || store.takes != 0 {
		t.Errorf("got %+v, header %v, %d takes; want allowed, no results, no header, no call", d, res.Header, store.takes)
	}
}

func TestResults(t *testing.T) {
	store, _ := newStore()
	var observed []middleware.Decision
	l := limiter(t, middleware.Config{Store: store, Observe: func(_ *http.Request, d middleware.Decision) { observed = append(observed, d) }},
		middleware.Policy{Name: "a", Key: key("x"), Limit: five},
		middleware.Policy{Name: "b", Key: key("y"), Limit: gcra.PerHour(7), Shadow: true},
		middleware.Policy{Name: "c", Key: key("z"), LimitFor: func(*http.Request) gcra.Limit { return gcra.PerDay(9) }},
		middleware.Policy{Name: "d", Key: key("z"), Limit: gcra.PerDay(11)},
	)
	d := l.Decide(get("/"))
	want := []middleware.PolicyResult{
		{Policy: "a", Subject: "x", Limit: five, Result: gcra.Result{Allowed: true, Remaining: 4, ResetAfter: 12 * time.Second}},
		{Policy: "b", Subject: "y", Shadow: true, Limit: gcra.PerHour(7), Result: gcra.Result{Allowed: true, Remaining: 6, ResetAfter: 514285714300}},
		{Policy: "c", Subject: "z", Limit: gcra.PerDay(9), Result: gcra.Result{Allowed: true, Remaining: 8, ResetAfter: 9600 * time.Second}},
		{Policy: "d", Subject: "z", Limit: gcra.PerDay(11), Result: gcra.Result{Allowed: true, Remaining: 10, ResetAfter: 7854545454500}},
	}
	if len(d.Results) != len(want) {
		t.Fatalf("got %d results; want %d", len(d.Results), len(want))
	}
	for i := range want {
		if d.Results[i] != want[i] {
			t.Errorf("result %d: got %+v; want %+v", i, d.Results[i], want[i])
		}
	}
	if len(observed) != 1 || observed[0].Allowed != d.Allowed || len(observed[0].Results) != len(want) {
		t.Errorf("observed %+v; want the decision, once", observed)
	}
}

func TestHangingUpDoesNotDodgeTheCharge(t *testing.T) {
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := l.Decide(get("/").WithContext(ctx))
	if d.Err != nil || store.canceled {
		t.Errorf("got error %v, store saw the cancellation: %t; want a decision as ever", d.Err, store.canceled)
	}
	if err := d.Spend(ctx, 1); err != nil {
		t.Error(err)
	}
	if got := left(t, store, "k", "only", five); got != 3 {
		t.Errorf("got %d left; want 3", got)
	}
	if err := d.Refund(ctx); err != nil {
		t.Error(err)
	}
	if got := left(t, store, "k", "only", five); got != 5 || store.canceled {
		t.Errorf("got %d left, store saw the cancellation: %t; want 5, false", got, store.canceled)
	}
}

func TestMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerSecond(1), MaxDelay: 2 * time.Second})
		// Capacity 1 and two places in the queue, a second each.
		for i, want := range []struct {
			status int
			waited time.Duration
		}{{200, 0}, {200, time.Second}, {200, time.Second}} {
			start := time.Now()
			res, _ := allow(l, get("/"))
			if got := time.Since(start); res.StatusCode != want.status || got != want.waited {
				t.Errorf("request %d: got %d after %v; want %d after %v", i+1, res.StatusCode, got, want.status, want.waited)
			}
		}
		// Decide does not wait.
		start := time.Now()
		if d := l.Decide(get("/")); d.Delay != time.Second || time.Since(start) != 0 {
			t.Errorf("Decide: got delay %v after %v; want 1s at once", d.Delay, time.Since(start))
		}
		if d := l.Decide(get("/")); d.Delay != 2*time.Second {
			t.Errorf("Decide: got delay %v; want 2s", d.Delay)
		}
		if res, _ := allow(l, get("/")); res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
			t.Errorf("queue full: got %d, Retry-After %q; want 429, 1", res.StatusCode, res.Header.Get("Retry-After"))
		}
	})
}

func TestMaxDelayEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(1), MaxDelay: 2 * time.Hour})
		allow(l, get("/"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		// The server ended the context, so somebody may still be listening: an
		// implied 200 would tell them that they were served.
		res, _ := allow(l, get("/").WithContext(ctx))
		if time.Since(start) != time.Second || res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" {
			t.Errorf("got %d after %v; want 503 after 1s", res.StatusCode, time.Since(start))
		}
	})
}

// onTop is a context key of other middleware.
type onTop struct{}

func TestStacked(t *testing.T) {
	store, _ := newStore()
	policy := func(name string, n int64) middleware.Policy {
		return middleware.Policy{Name: name, Key: key("k"), Limit: gcra.PerMinute(n)}
	}
	both := middleware.HeadersDraft6 | middleware.HeadersXRateLimit
	for _, test := range []struct {
		name         string
		headers      [2]middleware.Headers
		outer, inner middleware.Policy
		status       int
		want         string
	}{
		{"inner tighter", [2]middleware.Headers{both, both}, policy("o1", 9), policy("i1", 5), 200,
			"RateLimit-Limit: 5|RateLimit-Remaining: 4|RateLimit-Policy: 5;w=60|X-RateLimit-Limit: 5"},
		{"outer tighter", [2]middleware.Headers{both, both}, policy("o2", 5), policy("i2", 9), 200,
			"RateLimit-Limit: 5|RateLimit-Remaining: 4|RateLimit-Policy: 5;w=60|X-RateLimit-Limit: 5"},
		{"as tight, longer", [2]middleware.Headers{both, both}, policy("o3", 5), middleware.Policy{Name: "i3", Key: key("k"), Limit: gcra.PerHour(5)}, 200,
			"RateLimit-Limit: 5|RateLimit-Reset: 720|RateLimit-Policy: 5;w=3600"},
		{"inner denies", [2]middleware.Headers{both, both}, policy("o4", 5),
			middleware.Policy{Name: "i4", Key: key("k"), Limit: gcra.PerMinute(9), Cost: func(*http.Request) int { return 10 }}, 429,
			"RateLimit-Limit: |RateLimit-Remaining: |RateLimit-Reset: |RateLimit-Policy: 9;w=60|X-RateLimit-Limit: |X-RateLimit-Reset: |Retry-After: "},
		{"lists grow", [2]middleware.Headers{middleware.HeadersDraft11, middleware.HeadersDraft11}, policy("o5", 5), policy("i5", 9), 200,
			`RateLimit-Policy: "o5";q=5;w=60, "i5";q=9;w=60|RateLimit: "o5";r=4;t=12, "i5";r=8;t=7|RateLimit-Limit: `},
		{"list inside triple", [2]middleware.Headers{middleware.HeadersDraft6, middleware.HeadersDraft11}, policy("o6", 5), policy("i6", 9), 200,
			`RateLimit-Policy: "i6";q=9;w=60|RateLimit: "i6";r=8;t=7|RateLimit-Limit: 5`},
		{"triple inside list", [2]middleware.Headers{middleware.HeadersDraft11, middleware.HeadersDraft6}, policy("o7", 9), policy("i7", 5), 200,
			`RateLimit-Policy: "o7";q=9;w=60|RateLimit: "o7";r=8;t=7|RateLimit-Limit: 5`},
		{"other fields", [2]middleware.Headers{middleware.HeadersXRateLimit, middleware.HeadersDraft6}, policy("o8", 5), policy("i8", 9), 200,
			"RateLimit-Limit: 9|RateLimit-Policy: 9;w=60|X-RateLimit-Limit: 5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			outer := limiter(t, middleware.Config{Store: store, Headers: test.headers[0]}, test.outer)
			inner := limiter(t, middleware.Config{Store: store, Headers: test.headers[1]}, test.inner)
			w := httptest.NewRecorder()
			r, ok := outer.Allow(w, get("/"))
			if !ok {
				t.Fatal("outer limiter denied")
			}
			first := middleware.FromContext(r.Context())
			r, ok = inner.Allow(w, r.WithContext(context.WithValue(r.Context(), onTop{}, "on top")))
			if ok != (test.status == 200) {
				t.Fatalf("inner limiter: got %t; want status %d", ok, test.status)
			}
			if d := middleware.FromContext(r.Context()); d == first || d.Results[0].Policy != test.inner.Name {
				t.Errorf("FromContext: got the decision on %q; want the inner one", d.Results[0].Policy)
			}
			for _, field := range strings.Split(test.want, "|") {
				name, want, _ := strings.Cut(field, ": ")
				if got := w.Header().Values(name); len(got) > 1 || strings.Join(got, "") != want {
					t.Errorf("%s: got %q; want %q", name, got, want)
				}
			}
		})
	}
}

func TestFramework(t *testing.T) {
	store, _ := newStore()
	var seen any
	var mu sync.Mutex
	l := limiter(t, middleware.Config{Logger: unread, Store: store.Store}, middleware.Policy{Name: "all", Limit: five, Key: func(r *http.Request) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = middleware.Framework(r.Context())
		return "k", nil
	}})
	r := get("/")
	if middleware.Framework(r.Context()) != nil || middleware.FromContext(r.Context()) != nil {
		t.Error("a plain request carries something")
	}
	r = middleware.WithFramework(r, "the framework's own")
	if middleware.FromContext(r.Context()) != nil {
		t.Error("a request that passed no limiter carries a Decision")
	}
	passed, ok := l.Allow(httptest.NewRecorder(), r)
	if !ok || passed != r || seen != "the framework's own" {
		t.Errorf("got %t, same request %t, framework %v; want true, true and the one given", ok, passed == r, seen)
	}
	first := middleware.FromContext(passed.Context())
	// What a handler is given twice is decided twice, and apart.
	again, _ := l.Allow(httptest.NewRecorder(), passed)
	if again == passed || middleware.FromContext(again.Context()) == first || seen != "the framework's own" {
		t.Error("the second limiter shares the first one's Decision")
	}
	if got := first.Results[0].Remaining; got != 4 {
		t.Errorf("first decision: got %d remaining; want 4 still", got)
	}
	// Also at the same time, as when a request is sent to two handlers.
	shared := middleware.WithFramework(get("/"), 1)
	var wg sync.WaitGroup
	var decisions [2]*middleware.Decision
	for i := range decisions {
		wg.Go(func() {
			r, _ := l.Allow(httptest.NewRecorder(), shared)
			decisions[i] = middleware.FromContext(r.Context())
		})
	}
	wg.Wait()
	if decisions[0] == decisions[1] || decisions[0].Results[0].Remaining == decisions[1].Results[0].Remaining {
		t.Error("two limiters at once share a Decision")
	}
	// The request's own context goes on to work through it.
	type mark struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), mark{}, "m"))
	r = middleware.WithFramework(get("/").WithContext(ctx), 1)
	child, stop := context.WithCancel(r.Context())
	defer stop()
	cause := errors.New("cause")
	cancel(cause)
	<-child.Done()
	if r.Context().Value(mark{}) != "m" || context.Cause(child) != cause {
		t.Errorf("got value %v, cause %v; want m, cause", r.Context().Value(mark{}), context.Cause(child))
	}
}

func TestDenial(t *testing.T) {
	const body429 = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
		`"detail":"The request was denied because a rate limit is used up.","violated-policies":["a \"q\" \\","b"]}` + "\n"
	store, _ := newStore()
	once := gcra.PerHour(1)
	policies := []middleware.Policy{
		{Name: `a "q" \`, Key: key("k"), Limit: once}, {Name: "b", Key: key("k"), Limit: once},
		{Name: "fine", Key: key("k"), Limit: five}, {Name: "shadow", Key: key("k"), Limit: once, Shadow: true},
	}
	l := limiter(t, middleware.Config{Store: store}, policies...)
	l.Decide(get("/"))
	res, _ := allow(l, get("/"))
	body := new(strings.Builder)
	res.Write(body)
	if _, got, _ := strings.Cut(body.String(), "\r\n\r\n"); got != body429 {
		t.Errorf("body: got %s; want %s", got, body429)
	}
	for name, want := range map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "3600"} {
		if got := res.Header.Get(name); got != want || res.StatusCode != 429 {
			t.Errorf("%s: got %d, %q; want 429, %q", name, res.StatusCode, got, want)
		}
	}
	// What others said about the length of another body does not hold for this one.
	// Content-Encoding does: whoever has set it compresses what is written here.
	w := httptest.NewRecorder()
	w.Header().Set("Content-Length", "5")
	w.Header().Set("Content-Encoding", "br")
	if _, ok := l.Allow(w, get("/")); ok || w.Header().Get("Content-Length") != "" || w.Header().Get("Content-Encoding") != "br" {
		t.Errorf("got header %v; want no Content-Length, and the Content-Encoding", w.Header())
	}
	// Deny takes over with the fields in place.
	l = limiter(t, middleware.Config{Store: store, Deny: func(w http.ResponseWriter, _ *http.Request, d middleware.Decision) {
		if w.Header().Get("Retry-After") == "" || w.Header().Get("RateLimit-Limit") == "" {
			t.Error("Deny is called before the fields are set")
		}
		http.Error(w, "slow down", d.Status())
	}}, policies...)
	if res, _ = allow(l, get("/")); res.StatusCode != 429 || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("Deny: got %d, %q; want its own answer", res.StatusCode, res.Header.Get("Content-Type"))
	}
}
