package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/seed-e377111c/ratelimit/examples/internal/browser"
	"github.com/seed-e377111c/ratelimit/internal/test/process"
)

// The button sends eleven requests and shows what a client sees. After a reset on the
// inspector's page, to which a link leads, ten more pass.
func TestPage(t *testing.T) {
	b := browser.Start(t)
	p := process.Start(t)
	sent := chromedp.WaitVisible(chromedp.CSS("tr:nth-child(11) td:nth-child(5)"))
	send := func() {
		b.Do(chromedp.Navigate(p.URL), chromedp.Click(chromedp.CSS("#send")), sent, chromedp.WaitEnabled(chromedp.CSS("#send")))
	}

	for _, want := range []string{"10 passed, 1 denied.", "0 passed, 11 denied."} {
		send()
		if got := b.Text("#said"); !strings.HasPrefix(got, want+" Retry-After: the next one passes in ") {
			t.Errorf("got %q; want %q and when the next one passes", got, want)
		}
	}

	b.Do(chromedp.Click(chromedp.CSS("a")), chromedp.WaitVisible(chromedp.CSS(".answer button")),
		chromedp.Click(chromedp.CSS(".answer button")), chromedp.WaitVisible(chromedp.CSS("[role=status]")))
	send()
	if got, want := b.Text("tbody tr:nth-child(1)"), "1 200 9 360"; got != want {
		t.Errorf("the first row after a reset: got %q; want %q", got, want)
	}
	if got, want := b.Text("tbody tr:nth-child(11) td:nth-child(2)"), "429"; got != want {
		t.Errorf("the last row: got %q; want %q", got, want)
	}
	b.Do(chromedp.Click(chromedp.CSS("summary")))
	if got := b.Text("#last"); !strings.HasPrefix(got, "429 Too Many Requests") || !strings.Contains(got, "retry-after: ") {
		t.Errorf("the last answer: got %q", got)
	}

	for _, look := range []struct {
		name, scheme, ink string
		width             int64
	}{
		{"light", "light", "rgb(25, 28, 32)", 1200}, {"dark", "dark", "rgb(231, 234, 238)", 1200},
		{"phone-light", "light", "rgb(25, 28, 32)", 390}, {"phone-dark", "dark", "rgb(231, 234, 238)", 390},
	} {
		b.Look(look.scheme, look.width)
		b.Screenshot(look.name)
		if ink := browser.Seen(b, chromedp.Evaluate[string](`getComputedStyle(document.body).color`)); ink != look.ink {
			t.Errorf("%s: the text is %s; want %s", look.name, ink, look.ink)
		}
		if wide := browser.Seen(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > look.width {
			t.Errorf("%s: the page is %d wide; want at most %d", look.name, wide, look.width)
		}
	}

	denied := func(said string) bool { return strings.Contains(said, "429 (Too Many Requests)") }
	if said := slices.DeleteFunc(b.Complaints(), denied); len(said) > 0 {
		t.Errorf("the browser complains of %q", said)
	}
}
