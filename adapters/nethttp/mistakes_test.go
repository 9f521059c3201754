package ratelimit_test

import (
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A configuration that can never work is an error of middleware.New and a panic of
// an adapter's New. The text has what the user wrote and what would be right.
func TestMistakesOfNewcomers(t *testing.T) {
	store := middleware.Config{Store: gcra.NewMemory()}
	good := middleware.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5)}
	with := func(change func(*middleware.Policy)) []middleware.Policy {
		p := good
		change(&p)
		return []middleware.Policy{p}
	}

	type mistake struct {
		cfg      middleware.Config
		policies []middleware.Policy
		want     string
	}

	var noRedis *redisstore.Store // what an ignored error of redisstore.Open leaves
	for _, m := range []mistake{
		{middleware.Config{}, []middleware.Policy{good}, "ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own"},
		{middleware.Config{Store: noRedis}, []middleware.Policy{good}, "ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own"},
		{store, nil, "ratelimit: no policies; want at least one"},
		{store, with(func(p *middleware.Policy) { p.Key = nil }), `ratelimit: policy "login": Key is nil; want one of package keyfunc or your own`},
		{store, with(func(p *middleware.Policy) { p.Limit = gcra.Limit{} }),
			`ratelimit: policy "login": Limit is missing; want one such as gcra.PerMinute(100), or LimitFor`},
		{store, with(func(p *middleware.Policy) { p.Limit = gcra.PerMinute(0) }), `ratelimit: policy "login": Limit is 0/minute: count is 0; want at least 1`},
		{store, with(func(p *middleware.Policy) { p.Name = "" }),
			`ratelimit: policy number 1: Name is missing; want one such as "client", as the store keeps the policy's state under it`},
		{store, []middleware.Policy{good, good}, `ratelimit: policy "login": Name is taken by an earlier policy; want unique names`},
		{middleware.Config{}, []middleware.Policy{{Routes: []string{"login"}}}, "ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own\n" +
			"ratelimit: policy number 1: Name is missing; want one such as \"client\", as the store keeps the policy's state under it\n" +
			"ratelimit: policy number 1: Key is nil; want one of package keyfunc or your own\n" +
			"ratelimit: policy number 1: Limit is missing; want one such as gcra.PerMinute(100), or LimitFor\n" +
			`ratelimit: policy number 1: Routes[0] is "login": it has no "/"; want a pattern such as "POST /login"`},
	} {
		l, err := middleware.New(m.cfg, m.policies...)
		if l != nil || err == nil || err.Error() != m.want {
			t.Errorf("middleware.New: got %v\nwant %s", err, m.want)
		}
		if got := panicOf(func() { ratelimit.New(m.cfg, m.policies...) }); got != m.want {
			t.Errorf("ratelimit.New: got panic %s\nwant %s", got, m.want)
		}
	}
}

func panicOf(f func()) (text string) {
	defer func() {
		if err, ok := recover().(error); ok {
			text = err.Error()
		}
	}()
	f()
	return ""
}
