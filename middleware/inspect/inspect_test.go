package inspect_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

var five = gcra.PerMinute(5)

func TestNewNamesEveryMistake(t *testing.T) {
	a, b := newScene(t, middleware.Policy{Name: "only", Key: who, Limit: five}).limiter, newScene(t, middleware.Policy{Name: "only", Key: who, Limit: five}).limiter
	for _, test := range []struct {
		limiters []*middleware.Limiter
		want     []string
	}{
		{[]*middleware.Limiter{a, nil, b}, []string{"limiter number 2 is nil", "limiter number 3 has another store than number 1"}},
		{[]*middleware.Limiter{nil, a, b, a}, []string{"limiter number 1 is nil", "limiter number 3 has another store than number 2", "limiter number 4 is repeated"}},
	} {
		_, err := inspect.New(inspect.Config{}, test.limiters...)
		if err == nil {
			t.Fatalf("%v: got no error", test.want)
		}
		got := strings.Split(err.Error(), "\n")
		want := append([]string{"Authorize is nil"}, test.want...)
		if !slices.EqualFunc(got, want, func(line, want string) bool { return strings.HasPrefix(line, "inspect: "+want+"; want ") }) {
			t.Errorf("got %q; want lines that say %q", got, want)
		}
	}

	if _, err := inspect.New(inspect.Config{Authorize: everybody}); err == nil || !strings.Contains(err.Error(), "no limiters") {
		t.Errorf("without limiters: got %v; want an error", err)
	}
}

// Stores may have types that == panics on.
func TestStoreOfAnyType(t *testing.T) {
	type byValue struct {
		gcra.Store
		_ []int
	}
	s := newSceneOn(t, new(doubles.Clock), byValue{Store: gcra.NewMemory()}, middleware.Policy{Name: "only", Key: who, Limit: five})
	if got := s.left("k"); got != "only 5/5" {
		t.Errorf("got %q; want only 5/5", got)
	}
}

// Without authorization a client learns nothing and changes nothing.
func TestAuthorize(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "secret", Key: who, Limit: five})
	admin := func(r *http.Request) bool { return r.Header.Get("Admin") == "yes" && r.Method != http.MethodPost }
	page, err := inspect.New(inspect.Config{Authorize: admin}, s.limiter)
	if err != nil {
		t.Fatal(err)
	}
	s.ask(3, "k", "/")

	for _, h := range []http.Handler{page, new(inspect.Inspector)} {
		for _, r := range []*http.Request{
			httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/?subject=k", nil),
			httptest.NewRequest("BREW", "/", nil), post("subject=k&policy=secret"),
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusForbidden || w.Body.String() != "not allowed\n" {
				t.Errorf("%s %s: got %d %q; want 403 and no more", r.Method, r.URL, w.Code, w.Body)
			}
		}
	}

	if got := s.left("k"); got != "secret 2/5" {
		t.Errorf("after a reset that was not allowed: got %q; want secret 2/5", got)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Admin", "yes")
	w := httptest.NewRecorder()
	if page.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("authorized: got %d; want 200", w.Code)
	}
}

func TestMethods(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "only", Key: who, Limit: five})
	for _, method := range []string{"PUT", "DELETE", "OPTIONS", "get"} {
		w := s.send(httptest.NewRequest(method, "/", nil))
		if got := w.Header().Get("Allow"); w.Code != http.StatusMethodNotAllowed || got != "GET, HEAD, POST" {
			t.Errorf("%s: got %d, Allow %q; want 405 and GET, HEAD, POST", method, w.Code, got)
		}
	}
	if w := s.send(httptest.NewRequest("HEAD", "/", nil)); w.Code != http.StatusOK {
		t.Errorf("HEAD: got %d; want 200", w.Code)
	}
}

// The page shows the policies in force and their settings.
func TestPolicies(t *testing.T) {
	plain := middleware.Policy{Name: "plain", Key: who, Limit: gcra.PerMinute(100).WithBurst(20)}
	rich := middleware.Policy{
		Name: "rich", Key: who, LimitFor: func(*http.Request) gcra.Limit { return five }, Plans: map[string]gcra.Limit{"free": five},
		Routes: []string{"GET /a", "/b/"}, Cost: func(*http.Request) int64 { return 1 }, Skip: func(*http.Request) bool { return false },
		Shadow: true, MaxDelay: 2 * time.Second, MaxDebt: 70, OnFailure: middleware.FailClosed,
	}

	s := newScene(t, plain, rich)
	s.ask(1, "k", "/a")
	got := s.json("").Policies
	if len(got) != 2 {
		t.Fatalf("got %+v; want two policies", got)
	}
	if p := got[0]; p.Name != "plain" || p.Limit != "100/minute burst 20" || p.LimitFor || p.CostFor || p.Skips || p.Shadow || p.MaxDelay != 0 || p.OnFailure != "local" || len(p.Routes) != 0 {
		t.Errorf("plain: got %+v", p)
	}

	if p := got[1]; p.Name != "rich" || p.Limit != "" || !p.LimitFor || !slices.Equal(p.Limits, []string{"5/minute"}) ||
		!slices.Equal(p.Routes, rich.Routes) || !p.CostFor || !p.Skips || !p.Shadow || p.MaxDelay != 2 || p.MaxDebt != 70 || p.OnFailure != "closed" {
		t.Errorf("rich: got %+v", p)
	}

	page := s.html("")
	for _, want := range []string{
		"100/minute burst 20", "Every request", "on failure: local", "5/minute", "depending on the request",
		"GET /a", "/b/", "with exceptions", "cost depends on the request", "shadow: denies nothing", "delayed up to 2 s", "debt up to 70", "on failure: closed",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// After a reload the page shows the new policies alone.
func TestReload(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "old", Key: who, Limit: five})
	s.ask(1, "k", "/")
	if err := s.limiter.Reload(middleware.Policy{Name: "new", Key: who, Limit: gcra.PerHour(7)}); err != nil {
		t.Fatal(err)
	}
	s.ask(1, "k", "/")

	r := s.json("")
	if p := r.Policies; len(p) != 1 || p[0].Name != "new" || p[0].Limit != "7/hour" || p[0].Allowed != 1 || r.Decisions.Total != 2 {
		t.Errorf("got %+v and %d decisions; want the new policy with 1 of 2", p, r.Decisions.Total)
	}
}

// Each decision is counted once, in the step in which it was made, for 15 minutes.
func TestCounts(t *testing.T) {
	s := newScene(t,
		middleware.Policy{Name: "enforced", Key: who, Limit: five},
		middleware.Policy{Name: "shadow", Key: who, Limit: gcra.PerMinute(2), Shadow: true})
	s.ask(8, "k", "/")
	s.Add(30 * time.Second)
	s.ask(1, "k", "/")
	got := s.json("")
	if d := got.Decisions; d.Total != 9 || d.Denied != 3 || d.Degraded != 0 {
		t.Errorf("decisions: got %+v; want 9, of which 3 denied", d)
	}

	p := got.Policies[0]
	if p.Allowed != 6 || p.Denied != 3 || p.ShadowDenied != 0 {
		t.Errorf("enforced: got %d allowed, %d denied, %d shadow denied; want 6, 3, 0", p.Allowed, p.Denied, p.ShadowDenied)
	}
	if n := len(p.Chart.Allowed); n != 60 || p.Chart.Allowed[57] != 5 || p.Chart.Denied[57] != 3 || p.Chart.Allowed[58] != 0 || p.Chart.Allowed[59] != 1 {
		t.Errorf("enforced: got %v and %v; want 60 steps that end in 5, 0, 1 and 3, 0, 0", p.Chart.Allowed, p.Chart.Denied)
	}
	p = got.Policies[1]
	if p.Allowed != 3 || p.Denied != 0 || p.ShadowDenied != 6 {
		t.Errorf("shadow: got %d allowed, %d denied, %d shadow denied; want 3, 0, 6", p.Allowed, p.Denied, p.ShadowDenied)
	}

	s.Add(14*time.Minute + 30*time.Second)
	if got := s.json("").Decisions.Total; got != 1 {
		t.Errorf("15 minutes after the first step: got %d decisions; want the 1 of later", got)
	}
	s.Add(30 * time.Second)
	if got := s.json(""); got.Decisions.Total != 0 || got.Policies[0].Allowed != 0 {
		t.Errorf("15 minutes after the last: got %+v; want nothing", got.Decisions)
	}
}

// Degraded decisions are counted.
func TestDegraded(t *testing.T) {
	store := doubles.NewStore()
	s := newSceneOn(t, &store.Clock, store, middleware.Policy{Name: "only", Key: who, LimitFor: func(*http.Request) gcra.Limit { return five }})
	store.Err = errors.New("store is down")
	s.ask(7, "k", "/")
	got := s.json("")
	if d := got.Decisions; d.Total != 7 || d.Denied != 2 || d.Degraded != 7 {
		t.Errorf("got %+v; want 7 decisions, 2 denied, all degraded", d)
	}
	if p := got.Policies[0]; p.Allowed != 5 || p.Denied != 2 || len(p.MostDenied) != 1 {
		t.Errorf("got %+v; want 5 allowed, 2 denied, one subject", p)
	}
}

// The page shows the last error as long as it counts it: as text, in one line, shortened.
func TestDegradedReason(t *testing.T) {
	store := doubles.NewStore()
	s := newSceneOn(t, &store.Clock, store, middleware.Policy{Name: "p", Key: who, Limit: five})
	const title = "Last error"
	s.ask(1, "k", "/")
	if got := s.json("").Decisions.Reason; got != "" || strings.Contains(s.html(""), title) {
		t.Errorf("without an error: got reason %q; want none", got)
	}

	store.Err = errors.New("first reason")
	s.ask(1, "k", "/")
	store.Err = errors.New("WRONGPASS <b>\nsecond line\n" + strings.Repeat("x", 1000))
	s.ask(1, "k", "/")
	got := s.json("").Decisions.Reason
	if !strings.Contains(got, "WRONGPASS <b>; second line; xxx") || len(got) != 300 {
		t.Errorf("got reason %q; want the last one, in a line of some length", got)
	}

	if page := s.html(""); !strings.Contains(page, title+": ") || !strings.Contains(page, "WRONGPASS &lt;b&gt;; second line") {
		t.Errorf("got\n%s\nwant the reason", page)
	}
	s.Add(15 * time.Minute)
	if got := s.json("").Decisions.Reason; got != "" || strings.Contains(s.html(""), title) {
		t.Errorf("15 minutes later: got reason %q; want none", got)
	}
}

func TestMostDenied(t *testing.T) {
	s := newScene(t,
		middleware.Policy{Name: "some", Key: who, Limit: five, Routes: []string{"/some"}},
		middleware.Policy{Name: "every", Key: who, Limit: gcra.PerMinute(1000)})
	s.ask(25, "loud", "/some")
	s.ask(8, "louder than some", "/some")
	s.ask(5, "quiet", "/some")
	got := s.json("").Policies
	if most := got[0].MostDenied; len(most) != 2 || most[0].Subject != "loud" || most[0].AtLeast != 20 || most[1].Subject != "louder than some" || most[1].AtLeast != 3 {
		t.Errorf("got %+v; want loud 20 times and another 3 times", most)
	}

	if most := got[1].MostDenied; len(most) != 0 {
		t.Errorf("a policy that denied nothing: got %+v; want none", most)
	}

	for i := range 8 {
		s.ask(6, strings.Repeat("x", 1+i), "/some")
	}
	if n := len(s.json("").Policies[0].MostDenied); n != 8 {
		t.Errorf("got %d of ten subjects; want 8", n)
	}

	// Old denials are forgotten.
	s.Add(18 * time.Minute)
	if most := s.json("").Policies[0].MostDenied; len(most) != 0 {
		t.Errorf("18 minutes later: got %+v; want none", most)
	}
}

func TestStats(t *testing.T) {
	clock := new(doubles.Clock)
	store := &busyStore{Memory: gcra.NewMemory(gcra.MemoryConfig{Now: clock.Now})}
	s := newSceneOn(t, clock, store, middleware.Policy{Name: "only", Key: who, Limit: five})
	s.ask(41, "k", "/")
	got := s.json("").Store
	if got.Kind != "*inspect_test.busyStore" || got.Stats == nil {
		t.Fatalf("got %+v; want statistics", got)
	}

	if st := *got.Stats; st.Batches != 41 || st.FailedBatches != 3 || st.CachedDenials != 8 || st.BatchTime != 41*640*time.Microsecond || st.LocalUnits != 246 || st.ReportedUnits != 123 || st.LostUnits != 82 {
		t.Errorf("got %+v; want 41 batches of 640 us and 3 failed, 8 cached denials, 246 units granted alone, 123 charged, 82 not", st)
	}
	page := s.html("")
	for _, want := range []string{"10.0.0.5:6379", "closed: in use", "10.0.0.6:6379", "open: not called", "0.64 ms", "2.3"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestMemoryHasNoStats(t *testing.T) {
	s := newScene(t, middleware.Policy{Name: "only", Key: who, Limit: five})
	if got := s.json("").Store; got.Kind != "Memory" || got.Stats != nil {
		t.Errorf("got %+v; want Memory and no statistics", got)
	}
	page := s.html("?subject=k")
	if !strings.Contains(page, "has no statistics") {
		t.Error("the page does not say that there are no statistics")
	}
	if !strings.Contains(page, "refills the selected buckets on this server only.") {
		t.Error("the page does not say that a reset is for this server only")
	}
}

// A server that is not in use has the reason on the page and in the JSON.
func TestReasonOfAnOpenBreaker(t *testing.T) {
	store, err := redisstore.Open(redistest.Start(t, "--rename-command", "EVALSHA", "").URL(), redisstore.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := newSceneOn(t, new(doubles.Clock), store, middleware.Policy{Name: "p", Key: who, Limit: gcra.PerHour(5)})
	const reason = "the store needs EVALSHA, EVAL and the commands of the ACL line in SECURITY.md"
	redistest.Eventually(t, patience, "the reason", func() bool {
		s.ask(1, "k", "/")
		servers := s.json("").Store.Stats.Servers
		return len(servers) == 1 && servers[0].Breaker == "open" && strings.HasSuffix(servers[0].Reason, reason) && strings.Contains(s.html(""), reason)
	})
	if !strings.Contains(s.html(""), "have not been counted yet") {
		t.Error("the page does not say that the servers have not been counted")
	}
}

// On Redis a reset is for all servers.
func TestRedis(t *testing.T) {
	store, err := redisstore.New(redistest.Any(t), redisstore.Config{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	s := newSceneOn(t, new(doubles.Clock), store, middleware.Policy{Name: "p", Key: who, Limit: gcra.PerHour(5), MaxDelay: time.Minute})
	s.ask(8, "k", "/")
	if got := s.left("k"); got != "p 0/5" {
		t.Errorf("after 8: got %q; want p 0/5", got)
	}

	if w := s.send(post("subject=k&policy=p")); w.Code != http.StatusSeeOther {
		t.Fatalf("reset: got %d %s; want 303", w.Code, w.Body)
	}
	if got := s.left("k"); got != "p 5/5" {
		t.Errorf("after a reset: got %q; want p 5/5", got)
	}
	if !strings.Contains(s.html("?subject=k"), "refills the selected buckets for all servers.") {
		t.Error("the page does not say that a reset is for all servers")
	}

	got := s.json("").Store
	if got.Kind != "Redis" || got.Stats == nil || got.Stats.Batches < 3 || got.Stats.BatchTime <= 0 || len(got.Stats.Servers) != 1 || got.Stats.Servers[0].Breaker == redisstats.BreakerOpen {
		t.Errorf("got %+v; want a Redis with one server in use and its batches", got)
	}
	redistest.Eventually(t, patience, "the server's kind", func() bool {
		return s.json("").Store.Stats.Servers[0].Kind == redisstats.OneKeyspace && strings.Contains(s.html(""), "one keyspace: one script for all subjects")
	})
	redistest.Eventually(t, patience, "the count of servers", func() bool { return s.json("").Store.Stats.Instances == 1 })
	if !strings.Contains(s.html(""), "By the last count, 1 server shares the limits.") {
		t.Error("the page does not have the count of servers")
	}
}

// One page shows several limiters, such as those before and after authentication.
func TestSeveralLimiters(t *testing.T) {
	store := gcra.NewMemory()
	limiter := func(policies ...middleware.Policy) *middleware.Limiter {
		return middleware.Must(middleware.New(middleware.Config{Store: store}, policies...))
	}
	before := limiter(middleware.Policy{Name: "a", Key: who, Limit: five}, middleware.Policy{Name: "both", Key: who, Limit: five})
	after := limiter(middleware.Policy{Name: "both", Key: who, Limit: five}, middleware.Policy{Name: "b", Key: who, Limit: five})
	page, err := inspect.New(inspect.Config{Authorize: everybody}, before, after)
	if err != nil {
		t.Fatal(err)
	}

	s := &scene{t: t, Clock: new(doubles.Clock), page: page}
	for _, s.limiter = range []*middleware.Limiter{before, after} {
		s.ask(1, "k", "/")
	}
	if got, want := s.left("k"), "a 4/5, both 3/5, b 4/5"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	if got := s.json("").Decisions.Total; got != 2 {
		t.Errorf("got %d decisions; want 2", got)
	}
}

// Requests, reloads, views and resets may be concurrent.
func TestConcurrent(t *testing.T) {
	store := gcra.NewMemory()
	policies := func(i int) []middleware.Policy {
		limit := gcra.PerHour(int64(5 + i%20))
		return []middleware.Policy{
			{Name: "a", Key: who, Limit: five},
			{Name: string(rune('b' + i%5)), Key: who, LimitFor: func(*http.Request) gcra.Limit { return limit }},
		}
	}

	clock := new(doubles.Clock)
	s := newSceneOn(t, clock, store, policies(0)...)
	var all sync.WaitGroup

	for worker := range 4 {
		all.Go(func() {
			for i := range 300 {
				s.ask(1, strings.Repeat("x", (i*worker)%200), "/")
				clock.Add(time.Second)
				switch i % 10 {
				case 0:
					if err := s.limiter.Reload(policies(i)...); err != nil {
						t.Error(err)
					}
				case 3:
					s.send(httptest.NewRequest("GET", "/?subject=x", nil))
				case 6:
					s.send(post("subject=x&policy=a"))
				}
			}
		})
	}

	all.Wait()
	if d := s.json("").Decisions; d.Total == 0 || d.Total > 1200 {
		t.Errorf("got %+v; want some of the 1200 decisions", d)
	}
}
