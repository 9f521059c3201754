package faults

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault41ImpossibleLimitIsRejected(t *testing.T) {
	o := fault(t, "0, negative, NaN, > 1,000,000/s, 367 days")
	server := redistest.Start(t)
	store := patientStore(t, server)
	for _, limit := range []gcra.Limit{
		{Per: time.Second}, {Count: -1, Per: time.Second}, {Count: math.MinInt64, Per: time.Second},
		{Count: 1}, {Count: 1, Per: -time.Second}, {Count: 1, Per: math.MinInt64},
		{Count: 1, Per: time.Second, Burst: -1}, gcra.PerSecond(1_000_001), gcra.PerSecond(math.MaxInt64), {Count: 2, Per: time.Microsecond},
		{Count: 1, Per: 367 * 24 * time.Hour}, {Count: 1, Per: time.Hour, Burst: 366*24 + 1}, {Count: 1, Per: math.MaxInt64, Burst: math.MaxInt64},
	} {
		if _, err := middleware.New(middleware.Config{Store: store}, middleware.Policy{Name: "all", Key: everybody, Limit: limit}); err == nil {
			t.Errorf("%+v was accepted", limit)
		}
		// Only known when the request is there, it takes the OnFailure of a
		// policy without a limit, and Redis does not hear of it.
		resetStats(t, server)
		s := openSite(t, o, setup{Config: middleware.Config{Store: store}, policies: []middleware.Policy{
			{Name: "all", Key: everybody, LimitFor: func(*http.Request) gcra.Limit { return limit }}}})
		expect(t, fmt.Sprintf("%+v from LimitFor: status and calls", limit), []int64{int64(s.do(t, "GET /ok").StatusCode), calls(t, server, "evalsha")}, []int64{503, 0})
	}
	// As a configuration file has it.
	for _, text := range []string{"0/second", "-1/second", "NaN/second", "Inf/second", "1e3/second", "10/0s", "10/-1s", "10/NaN", "1000001/second",
		"1/8808h", "10/second burst 0", "10/second burst -1", "10/second burst NaN", "9223372036854775808/second", "", "/", "10", "10/second burst"} {
		var file struct{ Limit string }
		if err := json.Unmarshal(fmt.Appendf(nil, `{"Limit": %q}`, text), &file); err != nil {
			t.Fatal(err)
		}
		if limit, err := gcra.ParseLimit(file.Limit); err == nil {
			t.Errorf("%q in a file gives %+v; want an error", text, limit)
		}
	}
	// What is just possible is kept.
	for text, burst := range map[string]int{"1000000/second burst 3": 3, "1/8784h": 1, "1/8760h": 1, "1/1us burst 1": 1, "3/day": 3} {
		limit, err := gcra.ParseLimit(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		charges := mustTake(t, store, gcra.Charge{Subject: text, Limit: limit, Cost: int64(burst)})
		expect(t, text+": all at once", charges[0].Result.Allowed, true)
	}
	expect(t, "Redis is there", server.Client().Ping(t.Context()).Val(), "PONG")
}

func TestFault42NegativeOrHugeCostChangesNothing(t *testing.T) {
	o := fault(t, "costs of -1 to 2^63-1")
	server := redistest.Start(t)
	store := patientStore(t, server)
	key := "rl:{everybody}:all"
	var cost int
	limit := gcra.PerDay(1_000_000)
	s := openSite(t, o, setup{Config: middleware.Config{Store: store}, policies: []middleware.Policy{
		{Name: "all", Key: everybody, Limit: limit, Cost: func(*http.Request) int { return cost }, OnFailure: middleware.FailClosed}}})
	cost = 10
	expect(t, "an ordinary cost", s.do(t, "GET /ok").StatusCode, 200)
	before := dump(t, server, key)
	for _, huge := range []int{1_000_001, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1, math.MaxInt64/10 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		cost = huge
		a := s.do(t, "GET /ok")
		expect(t, fmt.Sprint("cost ", huge), []any{a.StatusCode, a.Header.Get("Retry-After"), dump(t, server, key) == before}, []any{429, "", true})
	}
	resetStats(t, server)
	for _, negative := range []int{-1, math.MinInt32, -1 << 53, math.MinInt64} {
		cost = negative
		expect(t, fmt.Sprint("cost ", negative), s.do(t, "GET /ok").StatusCode, 503)
		c := []gcra.Charge{{Subject: "everybody", Policy: "all", Limit: limit, Cost: int64(negative)}}
		if _, err := store.Take(t.Context(), c); err == nil {
			t.Errorf("Take of cost %d: no error", negative)
		}
		if err := store.Refund(t.Context(), c); err == nil {
			t.Errorf("Refund of cost %d: no error", negative)
		}
	}
	expect(t, "calls for negative costs", calls(t, server, "evalsha"), 0)
	expect(t, "the bucket after all", dump(t, server, key), before)
}

func TestFault43CostAboveTheBurstNeverPasses(t *testing.T) {
	o := fault(t, "cost burst + 1")
	server := redistest.Start(t)
	for name, store := range map[string]gcra.Store{"Memory": gcra.NewMemory(), "Redis": patientStore(t, server)} {
		eachFramework(t, func(t *testing.T, f framework) {
			cost := 0
			s := openSite(t, o, setup{framework: f, Config: middleware.Config{Store: store}, policies: []middleware.Policy{
				{Name: f.name, Key: everybody, Limit: gcra.PerDay(100).WithBurst(5), Cost: func(*http.Request) int { return cost }},
				{Name: "other " + f.name, Key: everybody, Limit: gcra.PerDay(100)}}})
			for _, step := range []struct {
				cost, status int
				remaining    string
				retry, never bool
			}{
				{6, 429, "", false, true},
				{2, 200, "3", false, false},
				{6, 429, "", false, true},
				{4, 429, "3", true, false},
				{3, 200, "0", false, false},
			} {
				cost = step.cost
				a := s.do(t, "GET /ok")
				expect(t, fmt.Sprintf("%s: cost %d", name, cost),
					[]any{a.StatusCode, a.Header.Get("RateLimit-Remaining"), a.Header.Get("Retry-After") != "", s.lastDecision().Results[0].Never},
					[]any{step.status, step.remaining, step.retry, step.never})
			}
			expect(t, name+": left of the other policy", s.lastDecision().Results[1].Remaining, 98)
		})
	}
}

func TestFault91MissingSettingsAreSafe(t *testing.T) {
	o := fault(t, "a policy from JSON without fields")
	enforced := func(t *testing.T, name string, cfg middleware.Config, p middleware.Policy) {
		p.Key = everybody
		cfg.Store = gcra.NewMemory()
		s := openSite(t, o, setup{Config: cfg, policies: []middleware.Policy{p}})
		a := s.do(t, "GET /ok")
		expect(t, name, []any{a.StatusCode, a.Header.Get("RateLimit-Limit"), a.Header.Get("RateLimit-Remaining")}, []any{200, "2", "1"})
		expect(t, name, s.statuses(t, "GET /ok", 2), []int{200, 429})
		// Neither open nor closed in an outage, but limited.
		cfg.Store = broken{}
		s = openSite(t, o, setup{Config: cfg, policies: []middleware.Policy{p}})
		expect(t, name+": without a store", s.statuses(t, "GET /ok", 3), []int{200, 200, 429})
	}
	for name, text := range map[string]string{
		"absent":        `{"Name": "api", "Limit": "2/day"}`,
		"zero":          `{"Name": "api", "Limit": "2/day", "Routes": [], "Shadow": false, "MaxDelay": 0, "OnFailure": 0}`,
		"null":          `{"Name": "api", "Limit": "2/day", "Routes": null, "Shadow": null, "MaxDelay": null, "OnFailure": null}`,
		"a wrong field": `{"Name": "api", "Limit": "2/day", "Enabled": false, "FailOpen": true}`,
	} {
		var p middleware.Policy
		var cfg middleware.Config
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := json.Unmarshal([]byte(`{}`), &cfg); err != nil {
			t.Fatal(err)
		}
		enforced(t, name, cfg, p)
	}
	// What has no safe choice is not guessed.
	_, err := middleware.New(middleware.Config{}, middleware.Policy{})
	for _, field := range []string{"Store", "Key", "Limit"} {
		if err == nil || !strings.Contains(err.Error(), field+" is") {
			t.Errorf("without %s: got %v; want an error that names it", field, err)
		}
	}
}
