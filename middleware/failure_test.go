package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/internal/share"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestStoreFails(t *testing.T) {
	policy := func(name string, o middleware.FailureMode, n int64) middleware.Policy {
		return middleware.Policy{Name: name, Key: key("k"), Limit: gcra.PerHour(n), OnFailure: o}
	}

	shadow := func(p middleware.Policy) middleware.Policy { p.Shadow = true; return p }
	local, open, closed := middleware.FailLocal, middleware.FailOpen, middleware.FailClosed

	for _, test := range []struct {
		name      string
		instances int
		policies  []middleware.Policy
		statuses  []int
		results   int
		header    string // RateLimit-Limit of the last answer
	}{
		{"local", 0, []middleware.Policy{policy("a", local, 2)}, []int{200, 200, 429}, 1, "2"},
		{"local share", 4, []middleware.Policy{policy("a", local, 8)}, []int{200, 200, 429}, 1, "8"},
		{"local share of little", 4, []middleware.Policy{policy("a", local, 1)}, []int{200, 429}, 1, "1"},
		{"open", 0, []middleware.Policy{policy("a", open, 1)}, []int{200, 200, 200}, 0, ""},
		{"closed", 0, []middleware.Policy{policy("a", closed, 9)}, []int{503, 503}, 0, ""},
		// Modes may be mixed: open passes, local decides, closed is final.
		{"local and open", 0, []middleware.Policy{policy("a", open, 1), policy("b", local, 2)}, []int{200, 200, 429}, 1, "2"},
		{"local and closed", 0, []middleware.Policy{policy("a", local, 2), policy("b", closed, 9)}, []int{503, 503, 503}, 0, ""},
		{"locals together", 0, []middleware.Policy{policy("a", local, 1), policy("b", local, 5)}, []int{200, 429, 429}, 2, "1"},
		// A shadow never denies, whatever its mode.
		{"shadow closed", 0, []middleware.Policy{shadow(policy("a", closed, 9)), policy("b", local, 2)}, []int{200, 200, 429}, 1, "2"},
		{"shadow local", 0, []middleware.Policy{shadow(policy("a", local, 1)), policy("b", local, 2)}, []int{200, 200, 429}, 2, "2"},
	} {
		for _, panics := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				store, _ := newStore()
				store.Fail, store.Panics = 1000, panics
				l := limiter(t, middleware.Config{Store: store, Instances: test.instances}, test.policies...)

				for i, want := range test.statuses {
					res, d := allow(l, get("/"))
					if res.StatusCode != want || d.Status() != want || !errors.Is(d.Err, errDown) || len(d.Results) != test.results {
						t.Fatalf("request %d: got %d, %d results, error %v; want %d, %d, the store's", i+1, res.StatusCode, len(d.Results), d.Err, want, test.results)
					}

					if want == 503 && res.Header.Get("Retry-After") != "1" {
						t.Errorf("503 with Retry-After %q; want 1", res.Header.Get("Retry-After"))
					}

					body := new(strings.Builder)
					res.Write(body)
					if strings.Contains(body.String(), "down") || strings.Contains(body.String(), "10.0.0.7") {
						t.Errorf("the client sees the cause: %s", body)
					}

					if i == len(test.statuses)-1 && res.Header.Get("RateLimit-Limit") != test.header {
						t.Errorf("RateLimit-Limit: got %q; want %q", res.Header.Get("RateLimit-Limit"), test.header)
					}
				}

				store.Fail = 0
				if d := l.Decide(get("/")); !d.Allowed || d.Err != nil {
					t.Errorf("after the failure: got %t, %v; want the store's decision", d.Allowed, d.Err)
				}
			})
		}
	}
}

func TestDegraded(t *testing.T) {
	store, _ := newStore()
	logger, text := debugLog(slog.LevelWarn)
	l := limiter(t, middleware.Config{Store: store, Logger: logger},
		middleware.Policy{Name: "fine", Key: key("k"), Limit: five},
		middleware.Policy{Name: "local", Key: keyFails, Limit: five},
		middleware.Policy{Name: "elsewhere", Key: key("k"), Limit: five, Routes: []string{"/elsewhere"}},
		middleware.Policy{Name: "open", Key: keyFails, Limit: five, OnFailure: middleware.FailOpen})

	if got, want := l.Decide(get("/")).Degraded(), []string{"local", "open"}; !slices.Equal(got, want) {
		t.Errorf("two keys fail: got %q; want %q", got, want)
	}

	store.Fail = 1
	if got, want := l.Decide(get("/")).Degraded(), []string{"fine", "local", "open"}; !slices.Equal(got, want) {
		t.Errorf("the store fails: got %q; want %q", got, want)
	}
	logged := text()
	if want := `requests="counted by this server alone, with its share of the limit" error=`; !strings.Contains(logged, want) {
		t.Errorf("the store fails: the log does not say %s, without the policies whose keys failed:\n%s", want, logged)
	}

	l = limiter(t, middleware.Config{Store: store}, middleware.Policy{Name: "only", Key: key("k"), Limit: five})
	if got := l.Decide(get("/")).Degraded(); got != nil {
		t.Errorf("all is well: got %q; want nil", got)
	}
}

func TestDeniedLocallyAfterTheStoreAllowed(t *testing.T) {
	// The store has allowed the request with a delay when the local state denies
	// it: the request does not wait, and its charge is refunded.
	store, _ := newStore()
	hour := gcra.PerHour(1)
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "bad", Key: keyFails, Limit: hour},
		middleware.Policy{Name: "good", Key: key("k"), Limit: hour, MaxDelay: time.Hour})
	l.Decide(get("/"))
	if d := l.Decide(get("/")); d.Allowed || d.Delay != 0 {
		t.Errorf("got %t, delay %v; want denied at once", d.Allowed, d.Delay)
	}
	if r, err := gcra.Peek(t.Context(), store, gcra.Charge{Subject: "k", Policy: "good", Limit: hour, MaxDelay: time.Hour, MaxWait: time.Hour}); err != nil || r.ResetAfter != time.Hour {
		t.Errorf("queue: full in %v, %v; want 1h: one request was served", r.ResetAfter, err)
	}
}

// Requests that cost more than a server's share pass one at a time, and cheap
// ones in between do not erase their debt.
func TestLocalShareOfMixedRequests(t *testing.T) {
	now := time.Unix(0, 0)
	local := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
	l := limiter(t, middleware.Config{Store: down{local}, Instances: 10},
		middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerSecond(100), Cost: func(r *http.Request) int64 {
			if r.URL.Path == "/big" {
				return 100
			}
			return 1
		}})

	units := 0
	for range 80 { // of 100 ms
		for _, path := range []string{"/big", "/small"} {
			if d := l.Decide(get(path)); d.Allowed && path == "/big" {
				units += 100
			} else if d.Allowed {
				units++
			}
		}

		now = now.Add(100 * time.Millisecond)
	}

	// 8 s of a tenth of 100 a second, and the 100 that the first one costs.
	if units > 8*10+100 {
		t.Errorf("a tenth of 100 a second let %d units pass in 8 s; want 180 at most", units)
	}

	if units < 100 {
		t.Errorf("only %d units passed; want the first expensive request to pass", units)
	}
}

// A policy that fails local uses the Local of a LocalStore. For other stores, such
// as one that wraps a LocalStore, it uses a Memory of the limiter.
func TestLocalStore(t *testing.T) {
	p := middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(3)}
	known := gcra.NewMemory() // two of three are used
	if _, err := gcra.Take(t.Context(), known, gcra.Charge{Subject: "k", Policy: "only", Limit: p.Limit, Cost: 2}); err != nil {
		t.Fatal(err)
	}

	var store gcra.LocalStore = down{known}
	wrapped := struct{ gcra.Store }{store}

	for _, test := range []struct {
		name  string
		store gcra.Store
		left  int64
	}{{"LocalStore", store, 0}, {"wrapped without Local", wrapped, 2}} {
		l := limiter(t, middleware.Config{Store: test.store, Logger: unread}, p)
		if d := l.Decide(get("/")); !d.Allowed || d.Results[0].Remaining != test.left {
			t.Errorf("%s: got %t, %d left; want allowed, %d left", test.name, d.Allowed, d.Results[0].Remaining, test.left)
		}
	}
}

// down is a store that does not answer and has a local one.
type down struct{ local gcra.Store }

func (down) Take(context.Context, []gcra.Charge) (bool, error) { return false, errors.New("down") }
func (down) Refund(context.Context, []gcra.Charge) error       { return errors.New("down") }

func (d down) Local(instances int) gcra.Store {
	if iface.IsNil(d.local) {
		return d.local
	}
	return share.Store{Store: d.local, Instances: instances}
}

func TestPolicyFails(t *testing.T) {
	panics := func(*http.Request) int64 { panic("cost") }
	consequences := map[string]string{"key": "counted in one shared bucket", "skip": "counted in one shared bucket", "cost": "charged the whole burst",
		"limit": "counted by this server alone", "override": "counted by this server alone"} // by the first word of the name
	for _, test := range []struct {
		name    string
		policy  middleware.Policy
		local   []int // with FailLocal; nil: 200, 200, 429
		limited bool  // the limit is known, so FailLocal can be
		message string
	}{
		{"key", middleware.Policy{Name: "only", Key: keyFails, Limit: gcra.PerHour(2)}, nil, true, "bad: no key today"},
		{"key panics", middleware.Policy{Name: "only", Key: keyPanics, Limit: gcra.PerHour(2)}, nil, true, "bad: panic: interface conversion"},
		{"key, without asking LimitFor", middleware.Policy{Name: "only", Key: keyFails, Limit: gcra.PerHour(2), LimitFor: func(*http.Request) gcra.Limit { return gcra.Unlimited() }}, nil, true, "bad: no key today"},
		// A client may have caused it, so it takes the whole burst.
		{"cost", middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(2), Cost: func(*http.Request) int64 { return -1 }}, []int{200, 429, 429}, true, "bad: cost of the request is -1"},
		{"cost panics", middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(2), Cost: panics}, []int{200, 429, 429}, true, "bad: panic: cost"},
		{"skip panics", middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(2), Skip: func(*http.Request) bool { panic("skip") }}, nil, true, "bad: panic: skip"},
		{"limit", middleware.Policy{Name: "only", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { return gcra.PerHour(-2) }}, nil, false, "bad: Limit of LimitFor is -2/hour: count is -2"},
		{"limit panics", middleware.Policy{Name: "only", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { panic("plan") }}, nil, false, "bad: panic: plan"},
		{"limit panics, with a fallback", middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(2), LimitFor: func(*http.Request) gcra.Limit { panic("plan") }}, nil, true, "bad: panic: plan"},
		{"override", middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(2), Override: func(string) (middleware.Override, bool) { return middleware.Override{Limit: gcra.PerHour(-2)}, true }}, nil, true, "bad: Limit of Override is -2/hour: count is -2"},
		{"override panics", middleware.Policy{Name: "only", Key: key("k"), Limit: gcra.PerHour(2), Override: func(string) (middleware.Override, bool) { panic("list") }}, nil, true, "bad: panic: list"},
		{"override panics, without a limit", middleware.Policy{
			Name: "only", Key: key("k"), LimitFor: func(*http.Request) gcra.Limit { return gcra.Unlimited() },
			Override: func(string) (middleware.Override, bool) { panic("list") },
		}, nil, false, "bad: panic: list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, mode := range []struct {
				onFailure middleware.FailureMode
				want      []int
			}{
				{middleware.FailLocal, []int{200, 200, 429}},
				{middleware.FailOpen, []int{200, 200, 200, 200, 200, 429}},
				{middleware.FailClosed, []int{503, 503, 503}},
			} {
				if mode.onFailure == middleware.FailLocal && !test.limited {
					mode.want = []int{503, 503, 503}
				}

				if mode.onFailure == middleware.FailLocal && test.local != nil {
					mode.want = test.local
				}

				store, _ := newStore()
				bad := test.policy
				bad.Name, bad.OnFailure = "bad", mode.onFailure
				logger, text := debugLog(slog.LevelWarn)
				l := limiter(t, middleware.Config{Store: store, Logger: logger}, bad, middleware.Policy{Name: "good", Key: key("k"), Limit: five})
				passed := int64(0)

				for i, want := range mode.want {
					res, d := allow(l, get("/"))
					if res.StatusCode != want || d.Err == nil || !strings.Contains(d.Err.Error(), test.message) {
						t.Errorf("failure mode %d, request %d: got %d, error %v; want %d, %q", mode.onFailure, i+1, res.StatusCode, d.Err, want, test.message)
					}

					if want == 200 {
						passed++
					}
				}

				function, _, _ := strings.Cut(strings.ReplaceAll(test.name, ",", ""), " ")
				if logged := text(); mode.onFailure == middleware.FailLocal && test.limited && !strings.Contains(logged, `requests="`+consequences[function]) {
					t.Errorf("got %s; want that requests are %s", logged, consequences[function])
				}

				// The store decided the other policy, and charged it only for what passed.
				if got := left(t, store, "k", "good", five); got != 5-passed {
					t.Errorf("failure mode %d: good: got %d left; want %d", mode.onFailure, got, 5-passed)
				}
			}
		})
	}
}

func TestRefundToBothSources(t *testing.T) {
	// The policy whose key fails is charged in the local state, the other in the
	// store. Both are refunded.
	store, _ := newStore()
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "bad", Key: keyFails, Limit: gcra.PerHour(1)},
		middleware.Policy{Name: "good", Key: key("k"), Limit: five})

	for i := range 3 {
		d := l.Decide(get("/"))
		if !d.Allowed {
			t.Fatalf("request %d: denied; want allowed, as the one before was refunded", i+1)
		}
		if err := d.Refund(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	if got := left(t, store, "k", "good", five); got != 5 {
		t.Errorf("good: got %d left; want 5", got)
	}

	// The store's charges are copied then, with the period of a quota: what comes after it gives nothing back.
	quota := gcra.Quota(5, gcra.Hourly)
	store, clock := newStore()
	l = limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "bad", Key: keyFails, Limit: five},
		middleware.Policy{Name: "quota", Key: key("k"), Limit: quota})
	late := l.Decide(get("/"))
	clock.Add(time.Hour)
	l.Decide(get("/"))
	if err := late.Refund(t.Context()); err != nil || left(t, store, "k", "quota", quota) != 4 {
		t.Errorf("an hour late: got %v, %d left; want 4", err, left(t, store, "k", "quota", quota))
	}
}

// Each share admits one request of any cost up to the burst, or it would never
// pass. So several servers that lose Redis together admit more than the burst.
func TestBoundOfExpensiveRequests(t *testing.T) {
	const instances, burst = 20, 20
	admitted := int64(0)

	for range instances {
		store, err := redisstore.Open("redis://127.0.0.1:1/0", redisstore.Config{Logger: slog.New(slog.DiscardHandler)}) // nothing listens there
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()

		l := limiter(t, middleware.Config{Store: store, Instances: instances}, middleware.Policy{
			Name: "export", Key: key("k"), Limit: gcra.PerHour(1).WithBurst(burst),
			Cost: func(*http.Request) int64 { return burst },
		})

		for range 3 {
			if l.Decide(get("/")).Allowed {
				admitted += burst
			}
		}
	}

	if want := int64(instances * burst); admitted != want {
		t.Errorf("got %d units admitted; want %d: one request of each server", admitted, want)
	}
}

// With MaxDelay a share first grants cheap requests and then holds one of the whole burst
// back: together servers admit the units of MaxDelay beyond one request of each.
func TestBoundOfExpensiveRequestsWithDelay(t *testing.T) {
	const instances, burst, delayed = 4, 4, 8
	admitted := int64(0)

	for range instances {
		store, err := redisstore.Open("redis://127.0.0.1:1/0", redisstore.Config{Logger: slog.New(slog.DiscardHandler)}) // nothing listens there
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()

		var cost int64
		l := limiter(t, middleware.Config{Store: store, Instances: instances}, middleware.Policy{
			Name: "export", Key: key("k"), Limit: gcra.PerHour(1).WithBurst(burst), MaxDelay: delayed * time.Hour,
			Cost: func(*http.Request) int64 { return cost },
		})

		for _, cost = range []int64{1, 1, burst, 1, burst} {
			if l.Decide(get("/")).Allowed {
				admitted += cost
			}
		}
	}

	if want := int64(instances*burst + delayed); admitted != want {
		t.Errorf("got %d units admitted; want %d: one request of each server, and what MaxDelay holds back", admitted, want)
	}
}

// localFails is a store whose local state fails.
type localFails struct{ *gcra.Memory }

func (localFails) Local(int) gcra.Store {
	store, _ := newStore()
	store.Fail = 1000
	return store
}

// A shadow whose local state fails changes nothing for the other policies: the request
// is allowed and charged, not allowed and refunded.
func TestLocalStoreFailsForAShadow(t *testing.T) {
	store := localFails{gcra.NewMemory()}
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "real", Key: key("k"), Limit: gcra.PerHour(2)},
		middleware.Policy{Name: "shadow", Key: keyFails, Limit: five, Shadow: true})
	for i, want := range []int{200, 200, 429} {
		if d := l.Decide(get("/")); d.Status() != want {
			t.Errorf("request %d: got %d; want %d", i+1, d.Status(), want)
		}
	}
}
