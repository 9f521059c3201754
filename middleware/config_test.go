package middleware_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestNewReportsEveryMistake(t *testing.T) {
	ok := middleware.Policy{Name: "ok", Key: key("k"), Limit: five}
	with := func(change func(*middleware.Policy)) []middleware.Policy {
		p := ok
		change(&p)
		return []middleware.Policy{p}
	}

	store := middleware.Config{Store: gcra.NewMemory()}
	for _, test := range []struct {
		name     string
		cfg      middleware.Config
		policies []middleware.Policy
		want     []string
	}{
		{"nothing", middleware.Config{}, nil, []string{"Store is nil", "no policies"}},
		{"a great many", middleware.Config{Store: gcra.NewMemory()}, make([]middleware.Policy, 257), []string{"257 policies; want at most 256"}},
		{"nil pointer", middleware.Config{Store: (*gcra.Memory)(nil)}, []middleware.Policy{ok}, []string{"Store is nil"}},
		{"no local store", middleware.Config{Store: down{}}, []middleware.Policy{ok}, []string{"Store is a middleware_test.down whose Local returns nil; want"}},
		{"nil local store", middleware.Config{Store: down{(*gcra.Memory)(nil)}}, []middleware.Policy{ok}, []string{"Store is a middleware_test.down whose Local returns nil; want"}},
		{"headers", middleware.Config{Store: store.Store, Headers: middleware.HeadersNone | middleware.HeadersXRateLimit | middleware.HeadersDraft11}, []middleware.Policy{ok}, []string{"Headers is draft11|x-ratelimit|none; want"}},
		{"unknown headers", middleware.Config{Store: store.Store, Headers: 128}, []middleware.Policy{ok}, []string{"Headers is Headers(0b10000000); want"}},
		{"instances", middleware.Config{Store: store.Store, Instances: -1}, []middleware.Policy{ok}, []string{"Instances is -1; want"}},
		{"no names", store, []middleware.Policy{{Key: key("k"), Limit: five}, {Key: key("k"), Limit: five}},
			[]string{"policy number 1: Name is missing", "policy number 2: Name is missing"}},
		{"no name, and no other policy", store, []middleware.Policy{{Key: key("k"), Limit: five}},
			[]string{"policy number 1: Name is missing; want one such as \"client\", as the store keeps the policy's state under it"}},
		{"same names", store, []middleware.Policy{ok, ok}, []string{`policy "ok": Name is taken`}},
		{"long name", store, with(func(p *middleware.Policy) { p.Name = strings.Repeat("x", 65) }), []string{"Name has 65 characters; want at most 64"}},
		{"name with a line break", store, with(func(p *middleware.Policy) { p.Name = "a\r\nb" }), []string{`policy "a\r\nb": Name is "a\r\nb"; want printable ASCII`}},
		{"empty policy", store, []middleware.Policy{{}}, []string{"policy number 1: Name is missing", "policy number 1: Key is nil", "policy number 1: Limit is missing"}},
		{"limit", store, with(func(p *middleware.Policy) { p.Limit = gcra.PerSecond(2_000_000) }), []string{`policy "ok": Limit is 2000000/second: 2000000 per 1s is faster`}},
		{"both limits", store, with(func(p *middleware.Policy) {
			p.Limit, p.LimitFor = gcra.PerSecond(-1), func(*http.Request) gcra.Limit { return five }
		}), []string{`policy "ok": Limit is -1/second`}},
		{"plans", store, with(func(p *middleware.Policy) {
			p.Plans = map[string]gcra.Limit{"free": gcra.PerSecond(-1), "all": gcra.Unlimited(), "pro": {}}
		}), []string{`"ok": Plans is set, and LimitFor is nil; want`, `"ok": Plans["free"] is -1/second: `, `"ok": Plans["pro"] is `}},
		{"delays", store, with(func(p *middleware.Policy) { p.MaxDelay = -time.Second }), []string{`policy "ok": MaxDelay is -1s; want`}},
		{"long delay", store, with(func(p *middleware.Policy) { p.MaxDelay = 366*24*time.Hour + 1 }), []string{`policy "ok": MaxDelay is 8784h0m0.000000001s; want`}},
		{"limit that only the store takes", middleware.Config{Store: lax{}}, with(func(p *middleware.Policy) { p.Limit = gcra.Limit{Count: 5} }), []string{`policy "ok": Limit is 5/0s: period is 0s; want more than 0`}},
		{"no limit", store, with(func(p *middleware.Policy) { p.Limit = gcra.Unlimited() }), []string{`policy "ok": Limit is none: only LimitFor and Override may return gcra.Unlimited; want a limit such as 100/minute`}},
		{"a quota that the store does not keep", middleware.Config{Store: strict{store.Store}}, with(func(p *middleware.Policy) { p.Limit = gcra.Quota(40, gcra.Yearly) }), []string{"no strict window"}},
		{"a burst that the store does not keep", middleware.Config{Store: strict{store.Store}}, with(func(p *middleware.Policy) { p.Limit = gcra.PerMinute(5).WithBurst(2) }), []string{"no strict window"}},
		{"a quota with a delay", store, with(func(p *middleware.Policy) { p.Limit, p.MaxDelay = gcra.Quota(40, gcra.Yearly), time.Second }), []string{"MaxDelay is 1s; want 0"}},
		{"a quota from a day that some months lack", store, with(func(p *middleware.Policy) { p.Limit = gcra.Quota(40, gcra.Monthly.From(31)) }), []string{"first day is 31; want 1 to 28"}},
		{"ban status", middleware.Config{Store: store.Store, BanStatus: 200}, []middleware.Policy{ok}, []string{"BanStatus is "}},
		{"failure mode", store, with(func(p *middleware.Policy) { p.OnFailure = 3 }), []string{`policy "ok": OnFailure is 3; want`}},
		{"routes", store, with(func(p *middleware.Policy) { p.Routes = []string{"/ok", "login", "GET /{x}/{x}"} }),
			[]string{`policy "ok": Routes[1] is "login": `, `it has no "/"; want a pattern such as "POST /login"`, `Routes[2] is "GET /{x}/{x}": `, "duplicate wildcard name"}},
		{"all at once", middleware.Config{Instances: -1}, []middleware.Policy{{Name: "a"}, {Name: "b", Limit: five, MaxDelay: -1}},
			[]string{"Store is nil", "Instances is -1", `"a": Key is nil`, `"a": Limit is`, `"b": Key is nil`, `"b": MaxDelay is -1ns`}},
	} {
		l, err := middleware.New(test.cfg, test.policies...)
		if err == nil || l != nil {
			t.Errorf("%s: got a limiter; want an error", test.name)
			continue
		}

		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q; want it to say %q", test.name, err, want)
			}
		}

		if got := strings.Count(err.Error(), "ratelimit: "); len(test.want) != got && test.name != "routes" {
			t.Errorf("%s: got %d mistakes in %q; want %d", test.name, got, err, len(test.want))
		}
	}
}

// lax is a store that finds any limit right.
type lax struct{ gcra.Store }

func (lax) CheckLimit(gcra.Limit) error { return nil }

// The error names the policy and the field, so a program that reads policies from
// a file can point to the mistake.
func TestFieldError(t *testing.T) {
	ok := middleware.Policy{Name: "ok", Key: key("k"), Limit: five}
	bad := middleware.Policy{Name: "bad", Key: key("k"), Limit: five, Routes: []string{"/", "login"}}
	_, err := middleware.New(middleware.Config{Store: gcra.NewMemory()}, ok, bad)
	var m *middleware.FieldError
	if !errors.As(err, &m) || m.Index != 1 || m.Name != "bad" || m.Field != "Routes[1]" || !strings.HasPrefix(m.Err.Error(), `is "login": `) {
		t.Errorf("got %+v of %v; want Routes[1] of the policy at 1, bad", m, err)
	}
}
