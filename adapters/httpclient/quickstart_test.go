package httpclient_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/adapters/httpclient"
	"github.com/seed-e377111c/ratelimit/gcra"
)

// quickstart builds and runs examples/quickstart until the test ends.
func quickstart(t *testing.T) (url string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "quickstart")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../examples/quickstart")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "-addr", "127.0.0.1:0", "-redis", "")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	listens := regexp.MustCompile(`listens on (http://\S+)`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if found := listens.FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, out)
			return found[1]
		}
	}
	t.Fatal("quickstart did not print its address")
	return ""
}

// The quickstart allows a user 5 requests a second. Callers that try twice as many
// get 5 a second and never a 429. With RATELIMIT_LONG set the test takes a minute
// and its tolerance is 2 %.
//
// The quickstart also allows a user 100 requests a day, so each user calls for a
// while only; the client keeps to that limit too.
func TestQuickstart(t *testing.T) {
	users, each, tolerance := []string{"alice"}, 6*time.Second, 0.25
	if os.Getenv("RATELIMIT_LONG") != "" {
		users, each, tolerance = []string{"alice", "bob", "carol", "dave"}, 15*time.Second, 0.02
	} else {
		t.Parallel()
	}
	url := quickstart(t)
	const limit = 5 // a second
	var mu sync.Mutex
	statuses, tries, most := map[int]int{}, 0, time.Duration(0)
	tr := transport(t, httpclient.Config{
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
	client := &http.Client{Transport: tr}
	for _, user := range users {
		resp, err := client.Post(url+"/login", "application/json", strings.NewReader(`{"user":"`+user+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		var login struct{ Token string }
		if err := json.NewDecoder(resp.Body).Decode(&login); err != nil || login.Token == "" {
			t.Fatalf("login: got %+v, %v; want a token", login, err)
		}
		resp.Body.Close()

		ctx, cancel := context.WithTimeout(t.Context(), each)
		var wg sync.WaitGroup
		ticks := time.NewTicker(time.Second / (2 * limit))
	calling:
		for {
			wg.Go(func() {
				// A request whose turn would come after the end is not sent.
				resp, err := client.Do(requestIn(ctx, t, "GET", url+"/me", nil, "Authorization: Bearer "+login.Token))
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
