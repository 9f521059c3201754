package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/examples/internal/browser"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/inspect"
)

// hostile is a subject that would run, were it not shown as text.
const hostile = `<script>alert("x")</script>`

var longSubject = "own:" + strings.Repeat("a-very-long-tenant-name/", 8) + "42"

// busyStore has the statistics of a store on two servers.
type busyStore struct{ *gcra.Memory }

func (busyStore) Stats() redisstats.Stats {
	return redisstats.Stats{
		Batches: 1000, Operations: 2300, BatchTime: 640 * time.Millisecond, CachedDenials: 200, FailedBatches: 3,
		Servers: []redisstats.ServerState{{Server: "10.0.0.5:6379", Breaker: redisstats.BreakerClosed}, {Server: "10.0.0.6:6379", Breaker: redisstats.BreakerOpen}},
	}
}

// who counts the header Who.
func who(r *http.Request) (string, error) { return r.Header.Get("Who"), nil }

// site is a server that limits /hello and has the inspector on /debug/ratelimit.
type site struct {
	limiter     *middleware.Limiter
	hello, page string // URLs
}

func serve(t *testing.T, store gcra.Store, policies ...middleware.Policy) *site {
	t.Helper()
	limiter, err := middleware.New(middleware.Config{Store: store}, policies...)
	if err != nil {
		t.Fatal(err)
	}
	page, err := inspect.New(inspect.Config{Authorize: func(*http.Request) bool { return true }}, limiter)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/hello", ratelimit.From(limiter)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })))
	mux.Handle("/debug/ratelimit", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &site{limiter, server.URL + "/hello", server.URL + "/debug/ratelimit"}
}

// stopped is a store whose clock stands still, so that nothing refills.
func stopped() *gcra.Memory {
	now := time.Now()
	return gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
}

// ask has the limiter decide n times.
func (s *site) ask(n int, method, subject, path string) {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Who", subject)
	for range n {
		s.limiter.Decide(r)
	}
}

// busySite has traffic of many clients behind it.
func busySite(t *testing.T) *site {
	plans := map[string]gcra.Limit{"free": gcra.PerMinute(60), "pro": gcra.PerMinute(600)}
	plan := func(r *http.Request) gcra.Limit {
		if strings.HasPrefix(r.Header.Get("Who"), "sub:pro") {
			return plans["pro"]
		}
		return plans["free"]
	}

	s := serve(t, busyStore{stopped()},
		middleware.Policy{Name: "client", Key: who, Limit: gcra.PerMinute(100).WithBurst(20)},
		middleware.Policy{Name: "login", Key: who, Limit: gcra.PerMinute(5), Routes: []string{"POST /login", "POST /password"}, OnFailure: middleware.FailClosed},
		middleware.Policy{Name: "plan", Key: who, LimitFor: plan, Plans: plans, Cost: func(*http.Request) int64 { return 2 }},
		middleware.Policy{Name: "strict", Key: who, Limit: gcra.PerMinute(8), Shadow: true, MaxDelay: 2 * time.Second},
	)

	for user := range 12 {
		s.ask(6+user, "GET", fmt.Sprintf("sub:pro%d", user), "/hello")
		s.ask(9+user, "GET", fmt.Sprintf("ip:198.51.100.%d", user), "/hello")
	}
	s.ask(900, "GET", "ip:192.0.2.7", "/hello")
	s.ask(120, "GET", "ip:2001:db8:1:2::/64", "/hello")
	s.ask(60, "GET", longSubject, "/hello")
	s.ask(9, "POST", hostile, "/login")
	return s
}

// fiftyPolicies has a policy for each of fifty routes, and a few clients that send too much.
func fiftyPolicies(t *testing.T) *site {
	policies := make([]middleware.Policy, 50)
	for i := range policies {
		policies[i] = middleware.Policy{Name: fmt.Sprintf("route-%02d", i), Key: who, Limit: gcra.PerMinute(int64(10 + i)), Routes: []string{fmt.Sprintf("/v1/%d", i)}}
	}
	policies[7].Name, policies[7].Shadow = "a-long-name-of-a-policy-that-is-tried-first", true
	s := serve(t, stopped(), policies...)

	for i := range policies {
		s.ask(3+i%9, "GET", "sub:alice", fmt.Sprintf("/v1/%d", i))
	}
	for _, i := range []int{3, 7, 11, 19, 42} {
		s.ask(90+7*i, "GET", "ip:192.0.2.7", fmt.Sprintf("/v1/%d", i))
	}
	return s
}

// The page looks as it should: go test -artifacts keeps the pictures.
func TestScreenshots(t *testing.T) {
	b := browser.Start(t)
	s := busySite(t)
	for _, page := range []struct{ name, url string }{
		{"page", s.page}, {"subject", s.page + "?subject=ip:192.0.2.7&reset=login"},
		{"long-subject", s.page + "?subject=" + url.QueryEscape(longSubject)},
		{"fifty", fiftyPolicies(t).page},
	} {
		b.Do(chromedp.Navigate(page.url))
		for _, look := range []struct {
			name, scheme, ink string
			width             int64
		}{
			{"light", "light", "rgb(25, 28, 32)", 1200}, {"dark", "dark", "rgb(231, 234, 238)", 1200},
			{"phone-light", "light", "rgb(25, 28, 32)", 390}, {"phone-dark", "dark", "rgb(231, 234, 238)", 390},
		} {
			b.Look(look.scheme, look.width)
			b.Screenshot(page.name + "-" + look.name)
			if ink := browser.Seen(b, chromedp.Evaluate[string](`getComputedStyle(document.body).color`)); ink != look.ink {
				t.Errorf("%s %s: the text is %s; want %s", page.name, look.name, ink, look.ink)
			}
			if wide := browser.Seen(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > look.width {
				t.Errorf("%s %s: the page is %d wide; want at most %d", page.name, look.name, wide, look.width)
			}
		}
	}

	if bars := browser.Seen(b, chromedp.Evaluate[int64](`document.querySelectorAll("svg path.denied").length`)); bars == 0 {
		t.Error("no chart has denials")
	}
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the browser complains of %q", said)
	}
}

// An administrator finds a denied client, looks the subject up and resets it, by
// clicking; also over plain HTTP, where browsers say less of where a form comes
// from.
func TestResetInBrowser(t *testing.T) {
	b := browser.Start(t)
	for _, host := range []string{"127.0.0.1", "inspector.test"} {
		s := serve(t, stopped(),
			middleware.Policy{Name: "client", Key: who, Limit: gcra.PerMinute(10)},
			middleware.Policy{Name: "daily", Key: who, Limit: gcra.PerDay(100)})

		request := func(subject string) int {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), "GET", s.hello, nil)
			if err != nil {
				t.Fatal(err)
			}

			r.Header.Set("Who", subject)
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			return response.StatusCode
		}

		for range 12 {
			request(hostile)
		}

		b.Do(chromedp.Navigate(strings.Replace(s.page, "127.0.0.1", host, 1)))
		if got, want := b.Text("table.most tbody tr"), hostile+" 2"; got != want {
			t.Errorf("%s: most denied: got %q; want %q", host, got, want)
		}

		b.Do(chromedp.Click(chromedp.CSS("table.most a")), chromedp.WaitVisible(chromedp.CSS(".answer")))
		if got := b.Text(".answer h3"); got != hostile {
			t.Errorf("%s: the subject: got %q; want %q, as text", host, got, hostile)
		}
		if got, want := b.Text(".answer tbody"), "client 10/minute 0 of 10 in 1 min daily 100/day 90 of 100 in 2 h 24 min"; got != want {
			t.Errorf("%s: looked up: got %q; want %q", host, got, want)
		}

		// Only one of the two is reset.
		b.Do(chromedp.Click(chromedp.CSS("input[value=daily]")), chromedp.Click(chromedp.CSS(".answer button")),
			chromedp.WaitVisible(chromedp.CSS("[role=status]")))
		if got, want := b.Text("[role=status]"), "Reset: client."; got != want {
			t.Errorf("%s: got message %q; want %q", host, got, want)
		}
		if got, want := b.Text(".answer tbody"), "client 10/minute 10 of 10 now daily 100/day 90 of 100 in 2 h 24 min"; got != want {
			t.Errorf("%s: after the reset: got %q; want %q", host, got, want)
		}
		if got := request(hostile); got != http.StatusOK {
			t.Errorf("%s: a request after the reset: got %d; want 200", host, got)
		}

		// By hand, too, and for somebody who has not been seen.
		b.Do(chromedp.SetValue(chromedp.CSS("#subject"), "ip:192.0.2.7"), chromedp.Submit(chromedp.CSS("#subject")),
			chromedp.WaitNotPresent(chromedp.CSS("[role=status]")))
		if got, want := b.Text(".answer h3")+" "+b.Text(".answer td"), "ip:192.0.2.7 10 of 10"; got != want {
			t.Errorf("%s: looked up by hand: got %q; want %q", host, got, want)
		}
	}

	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the browser complains of %q", said)
	}
}

// The page denies the form of another site.
func TestCrossSiteInBrowser(t *testing.T) {
	b := browser.Start(t)
	s := serve(t, stopped(), middleware.Policy{Name: "client", Key: who, Limit: gcra.PerMinute(5)})
	s.ask(5, "GET", "x", "/hello")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="%s?subject=x"><button name="policy" value="client">You have won</button></form>`, s.page)
	}))

	t.Cleanup(evil.Close)
	b.Do(chromedp.Navigate(strings.Replace(evil.URL, "127.0.0.1", "inspector.test", 1)),
		chromedp.Click(chromedp.CSS("button")), chromedp.WaitNotPresent(chromedp.CSS("button")))
	if got, want := b.Text("body"), "denied: the request comes from another site"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}

	b.Do(chromedp.Navigate(s.page + "?subject=x"))
	if got, want := b.Text(".answer td"), "0 of 5"; got != want {
		t.Errorf("got %q left; want %q, nothing reset", got, want)
	}
}
