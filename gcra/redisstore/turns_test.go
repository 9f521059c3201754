package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// partnerURL makes this test binary a process whose goroutines call a partner,
// once a second over all processes: the Redis and the partner, with a space
// between.
const partnerURL = "GCRA_TEST_PARTNER_URL"

// callingChild calls the partner in turns until it is killed.
func callingChild(urls string, in io.Reader, out io.Writer) error {
	redisURL, partner, _ := strings.Cut(urls, " ")
	r, err := redisstore.Open(redisURL)
	if err != nil {
		return err
	}
	defer r.Close()
	call := func(who string) error {
		response, err := http.Get(partner + "/" + who)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return response.Body.Close()
	}
	// The way to the partner and to Redis is open before the first call, as in
	// a process that has been up for a while.
	if err := call(""); err != nil {
		return err
	}
	if _, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: "warm", Policy: "p", Limit: gcra.PerSecond(1), Cost: 1}); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	var start string
	if _, err := fmt.Fscanln(in, &start); err != nil {
		return err
	}
	failed := make(chan error)
	for i := range waiters {
		go func() {
			for {
				c := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.PerSecond(1), Cost: 1}
				err := gcra.Wait(context.Background(), r, c)
				if err == nil {
					err = call(fmt.Sprint(os.Getpid(), "/", i))
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	return <-failed
}

// Eight processes of twenty goroutines call a partner for half a minute. It
// sees them a second apart, to a millisecond, and each goroutine at most once:
// those that have not gone yet have asked before those that ask again.
func TestPartnerSeesTurns(t *testing.T) {
	if os.Getenv("RATELIMIT_LONG") == "" {
		t.Skip("takes half a minute, and a machine that does nothing else: make long runs it")
	}
	server := redistest.Start(t)
	type call struct {
		who string
		at  time.Time // Redis' clock is this machine's
	}
	var mu sync.Mutex
	var calls []call
	partner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Now()
		if r.URL.Path != "/" {
			mu.Lock()
			calls = append(calls, call{r.URL.Path, at})
			mu.Unlock()
		}
	}))
	defer partner.Close()
	var children [8]*process
	for i := range children {
		children[i] = startProcess(t, partnerURL+"="+server.URL()+" "+partner.URL)
	}
	for _, p := range children {
		if got := p.read(t); got != "ready" {
			t.Fatalf("a child says %q; want ready", got)
		}
	}
	// Two turns go by in which all ask, so that it is seen who asks again.
	queue := newStore(server.Client())
	queue.Prefix = "rl:"
	turns := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.PerSecond(1), Cost: 1, MaxDelay: 366 * 24 * time.Hour}
	gcratest.MustTake(t, queue, turns)
	gcratest.MustTake(t, queue, turns)
	for _, p := range children {
		p.write(t, "go")
	}
	time.Sleep(33 * time.Second)
	for _, p := range children {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(calls) < 30 || len(calls) > 32 {
		t.Errorf("the partner saw %d calls; want 30 to 32", len(calls))
	}
	seen := make(map[string]bool)
	var most time.Duration
	least := time.Hour
	for i, c := range calls {
		if seen[c.who] {
			t.Errorf("call %d: %s goes again before %d of %d have gone", i, c.who, len(seen), waiters*len(children))
		}
		seen[c.who] = true
		if i > 0 {
			gap := c.at.Sub(calls[i-1].at)
			least, most = min(least, gap), max(most, gap)
		}
	}
	t.Logf("%d calls, from %v to %v apart", len(calls), least, most)
	if least < 999*time.Millisecond {
		t.Errorf("two calls were %v apart; want at least 999ms", least)
	}
}
