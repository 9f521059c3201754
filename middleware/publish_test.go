package middleware_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// publisher is a store that keeps what its limiters say.
type publisher struct {
	gcra.Store
	calls int
	text  func() string
}

func (p *publisher) Publish(_ any, text func() string) { p.calls, p.text = p.calls+1, text }

// A limiter says what its policies are when it is made and reloaded, and what they count by once there
// is traffic: no subject, override or route.
func TestPublish(t *testing.T) {
	store := &publisher{Store: gcra.NewMemory()}
	plan := func(*http.Request) gcra.Limit { return five }
	l := limiter(t, middleware.Config{Store: store},
		middleware.Policy{Name: "client", Key: key("ip:192.0.2.7"), Limit: five, Routes: []string{"/secret"}, MaxDebt: 3},
		middleware.Policy{Name: "plan", Key: key("sub:alice"), LimitFor: plan, Plans: map[string]gcra.Limit{"pro": gcra.Unlimited()}, Shadow: true},
		middleware.Policy{Name: "func", Key: key("sub:alice"), LimitFor: plan})

	const want = `[{"name":"client","limit":"5/minute","max_debt":3},{"name":"plan","plans":{"pro":"none"},"shadow":true},{"name":"func","function":true}]`
	if got := store.text(); got != want {
		t.Errorf("got %s; want %s", got, want)
	}

	for range 200 {
		l.Decide(get("/"))
	}
	if got := store.text(); !strings.Contains(got, `"kinds":["sub"]`) || strings.Contains(got, "alice") {
		t.Errorf("got %s; want what plan counts by", got)
	}

	if err := l.Reload(middleware.Policy{Name: "new", Key: key("k"), Limit: five}); err != nil {
		t.Fatal(err)
	}
	if got := store.text(); store.calls != 2 || got != `[{"name":"new","limit":"5/minute"}]` {
		t.Errorf("reloaded: got %d calls and %s", store.calls, got)
	}
}
