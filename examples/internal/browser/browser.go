// Package browser drives a headless Chromium, for tests of pages.
package browser

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// patience bounds an action in a browser.
const patience = time.Minute

// Browser is a tab of a headless Chromium.
type Browser struct {
	t   *testing.T
	tab context.Context

	mu   sync.Mutex
	said []string // what it complained of: a style that was forbidden, a script, a dialog
}

func (b *Browser) complain(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, what)
}

// Complaints ends the sentence "the browser complains of".
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

// Start starts one that ends with the test. Where there is none, or it
// does not start, the test is skipped, or fails if the environment says
// RATELIMIT_TEST_BROWSER=required. For the browser inspector.test is this
// machine.
func Start(t *testing.T) *Browser {
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

	tab, cancel := chromedp.NewContext(t.Context(), chromedp.WithErrorf(t.Logf), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(path),
		chromedp.Flag("host-resolver-rules", "MAP inspector.test 127.0.0.1"),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-component-update", true),
	))

	t.Cleanup(cancel)
	if err := chromedp.Do(tab); err != nil {
		missing("%s does not start: %v", path, err)
	}

	b := &Browser{t: t, tab: tab}
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

// Do runs actions in the tab.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, action := range actions {
		Seen(b, action)
	}
}

// Seen returns what an action finds in the tab. One that finds nothing would
// wait for it.
func Seen[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	soon, cancel := context.WithTimeout(b.tab, patience)
	defer cancel()
	found, err := chromedp.Run(soon, action)
	if err != nil {
		soon, cancel := context.WithTimeout(b.tab, patience/6)
		defer cancel()
		shown, _ := chromedp.Run(soon, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
		b.t.Fatalf("%v; the page is\n%.1000s", err, shown)
	}
	return found
}

// Text is what stands in the first element that a CSS selector finds.
func (b *Browser) Text(selector string) string {
	b.t.Helper()
	return strings.Join(strings.Fields(Seen(b, chromedp.Text(chromedp.CSS(selector)))), " ")
}

// Look changes the color scheme and the width.
func (b *Browser) Look(scheme string, width int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.Do(chromedp.EmulateViewport(width, 900))
}

// Screenshot keeps a picture of the page: go test -artifacts tells where. Without the flag nobody would see it, and
// none is taken.
func (b *Browser) Screenshot(name string) {
	b.t.Helper()
	if flag.Lookup("test.artifacts").Value.String() != "true" {
		return
	}
	png := Seen(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o600); err != nil {
		b.t.Error(err)
	}
}
