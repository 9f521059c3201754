package inspect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// patience is for busy machines.
const patience = time.Minute

// hostile is a subject that would run, were it not shown as text.
const hostile = `<script>alert("x")</script>`

// browser is a tab of a headless Chromium.
type browser struct {
	t   *testing.T
	tab context.Context

	mu   sync.Mutex
	said []string // what it complained of: a style that was forbidden, a script, a dialog
}

func (b *browser) complain(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, what)
}

// complaints ends the sentence "the browser complains of".
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

// startBrowser starts one that ends with the test. Where there is none, or it
// does not start, the test is skipped, or fails if the environment says
// RATELIMIT_TEST_BROWSER=required. For the browser inspector.test is this
// machine.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	const env = "RATELIMIT_TEST_BROWSER"
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv(env) == "required" {
			t.Fatalf(format+", and "+env+"=required", args...)
		}
		t.Skipf(format+"; set "+env+"=required to make this a failure", args...)
	}
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		missing("chromium is not installed")
	}
	tab, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	tab, cancel = chromedp.NewContext(tab, chromedp.WithErrorf(t.Logf), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(path),
		chromedp.Flag("host-resolver-rules", "MAP inspector.test 127.0.0.1"),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-component-update", true),
	))
	t.Cleanup(cancel)
	if err := chromedp.Do(tab); err != nil {
		missing("%s does not start: %v", path, err)
	}
	b := &browser{t: t, tab: tab}
	err := chromedp.Listen(tab, func(event any) {
		switch e := event.(type) {
		case *cdplog.EventEntryAdded:
			b.complain(e.Entry.Text)
		case *cdppage.EventJavascriptDialogOpening:
			b.complain("a dialog: " + e.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.tab, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// seen returns what an action finds in the tab.
func seen[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	found, err := chromedp.Run(b.tab, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// text is what stands in the first element that a CSS selector finds.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return strings.Join(strings.Fields(seen(b, chromedp.Text(chromedp.CSS(selector)))), " ")
}

// look changes the color scheme and the width.
func (b *browser) look(scheme string, width int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(width, 900))
}

// screenshot keeps a picture of the page: go test -artifacts tells where.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	png := seen(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o600); err != nil {
		b.t.Error(err)
	}
}

// busyStore has the statistics of a Redis that has seen much.
type busyStore struct {
	*gcra.Memory
	trips atomic.Int64
}

func (s *busyStore) Take(ctx context.Context, charges []gcra.Charge) error {
	s.trips.Add(1)
	return s.Memory.Take(ctx, charges)
}

func (s *busyStore) Stats() gcra.Stats {
	n := s.trips.Load()
	return gcra.Stats{
		Trips: n, Carried: n * 23 / 10, TripTime: time.Duration(n) * 640 * time.Microsecond, Mirrored: n / 5, Failures: 3,
		Servers: []gcra.ServerState{{Server: "10.0.0.5:6379", Breaker: "closed"}, {Server: "10.0.0.6:6379", Breaker: "open"}},
	}
}

// busyScene has 15 minutes of traffic behind it, with a wave and an attack.
func busyScene(t *testing.T) *scene {
	clock := newClock()
	store := &busyStore{Memory: &gcra.Memory{Now: clock.now}}
	plan := func(r *http.Request) gcra.Limit {
		if strings.HasPrefix(r.Header.Get("Who"), "sub:pro") {
			return gcra.PerMinute(600)
		}
		return gcra.PerMinute(60)
	}
	s := newSceneOn(t, clock, store,
		middleware.Policy{Name: "client", Key: who, Limit: gcra.PerMinute(100).WithBurst(20)},
		middleware.Policy{Name: "login", Key: who, Limit: gcra.PerMinute(5), Routes: []string{"POST /login", "POST /password"}, Outage: middleware.OutageClosed},
		middleware.Policy{Name: "plan", Key: who, LimitFor: plan, Cost: func(*http.Request) int { return 2 }},
		middleware.Policy{Name: "strict", Key: who, Limit: gcra.PerMinute(8), Shadow: true, MaxDelay: 2 * time.Second},
	)
	for i := range 60 {
		for user := range 12 {
			s.ask(1+(i+user)%4, fmt.Sprintf("sub:pro%d", user), "/hello")
			s.ask(1, fmt.Sprintf("ip:198.51.100.%d", user), "/hello")
		}
		if i > 35 && i < 47 {
			s.ask(60+i, "ip:192.0.2.7", "/hello")
			s.ask(12, "ip:2001:db8:1:2::/64", "/hello")
		}
		if i%5 == 0 {
			r := httptest.NewRequest("POST", "/login", nil)
			r.Header.Set("Who", hostile)
			for range 9 {
				s.limiter.Decide(r)
			}
			s.ask(30, "own:"+strings.Repeat("a-very-long-tenant-name/", 8)+"42", "/hello")
		}
		if i < 59 {
			s.add(15 * time.Second)
		}
	}
	s.add(3 * time.Second)
	return s
}

// serve mounts the page under a prefix on a real server, and returns its URL.
func serve(t *testing.T, h http.Handler) *url.URL {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/ratelimit", h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL + "/debug/ratelimit")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestPageInBrowser(t *testing.T) {
	b := startBrowser(t)
	s := busyScene(t)
	address := serve(t, s.page).String()

	b.do(chromedp.Navigate(address))
	for _, look := range []struct {
		name, scheme string
		width        int64
	}{
		{"light", "light", 1200}, {"dark", "dark", 1200}, {"phone-light", "light", 390}, {"phone-dark", "dark", 390},
	} {
		b.look(look.scheme, look.width)
		b.screenshot(look.name)
		if wide := seen(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > look.width {
			t.Errorf("%s: the page is %d wide; want at most %d", look.name, wide, look.width)
		}
	}
	b.do(chromedp.Navigate(address + "?subject=" + url.QueryEscape("ip:192.0.2.7")))
	b.look("light", 1200)
	b.screenshot("subject-light")
	b.look("dark", 390)
	b.screenshot("subject-phone-dark")
	if said := b.complaints(); len(said) > 0 {
		t.Errorf("the browser complains of %q", said)
	}
}
