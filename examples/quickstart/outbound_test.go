package main

import (
	"context"
	"io"
	"math"
	"net/http"
	neturl "net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/process"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// The quickstart allows each user 5 requests a second. A client with the same
// limit whose callers want twice that gets 5 a second and never a 429. With
// RATELIMIT_LONG set the test takes a minute and allows 2 %.
//
// A user also has 100 requests a day, so each user asks for a while only. The
// client keeps that limit too.
func TestOutbound(t *testing.T) {
	users, each, tolerance := []string{"alice"}, 6*time.Second, 0.25
	if os.Getenv("RATELIMIT_LONG") != "" {
		users, each, tolerance = []string{"alice", "bob", "carol", "dave"}, 15*time.Second, 0.02
	} else {
		t.Parallel()
	}

	url := process.Start(t).URL
	const limit = 5 // a second
	var mu sync.Mutex
	statuses, tries, most := map[int]int{}, 0, time.Duration(0)
	transport, err := httpclient.New(httpclient.Config{
		Base: &http.Transport{MaxIdleConnsPerHost: 100}, Store: gcra.NewMemory(),
		Policies: []httpclient.Policy{
			// A burst of 1 spreads the requests, so that bunched ones still fit into
			// the server's burst of 5.
			{Name: "burst", Key: httpclient.ByCredential, Limit: gcra.PerSecond(limit).WithBurst(1)},
			{Name: "daily", Key: httpclient.ByCredential, Limit: gcra.PerDay(100)},
		},
		Observe: func(r *http.Request, e httpclient.Event) {
			if r.URL.Path != "/me" {
				return
			}

			mu.Lock()
			defer mu.Unlock()
			tries += e.Tries
			most = max(most, e.Waited)
			if e.Err == nil {
				statuses[e.Status]++
			} else if e.Reason != httpclient.TooLong && r.Context().Err() == nil {
				t.Error(e.Err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	client := &http.Client{Transport: transport}
	for _, user := range users {
		resp, err := client.PostForm(url+"/login", neturl.Values{"user": {user}})
		if err != nil {
			t.Fatal(err)
		}
		token, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("login: got %s, %v; want a token", resp.Status, err)
		}

		r, err := http.NewRequest("GET", url+"/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+string(token))

		ctx, cancel := context.WithTimeout(t.Context(), each)
		var wg sync.WaitGroup
		ticks := time.NewTicker(time.Second / (2 * limit))

	calling:
		for {
			wg.Go(func() {
				// A request whose turn would come after the end is not sent.
				resp, err := client.Do(r.Clone(ctx))
				if err == nil {
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})

			select {
			case <-ticks.C:
			case <-ctx.Done():
				break calling
			}
		}
		ticks.Stop()
		wg.Wait()
		cancel()
	}

	total := time.Duration(len(users)) * each
	got, want := statuses[http.StatusOK], limit*total.Seconds()
	off := float64(got)/want - 1
	t.Logf("%d of %d tries in %v got 200, %+.1f %% of the limit; the longest wait was %v; by status: %v", got, tries, total, 100*off, most, statuses)
	if statuses[http.StatusTooManyRequests] > 0 {
		t.Errorf("got %d times 429; want none", statuses[http.StatusTooManyRequests])
	}

	if math.Abs(off) > tolerance {
		t.Errorf("got %d answers in %v; want %v within %v %%", got, total, want, 100*tolerance)
	}
}
