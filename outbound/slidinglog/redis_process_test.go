package slidinglog_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// childURL makes this test binary a child process of TestPartner. It is the URL of the shared Redis.
const childURL = "SLIDINGLOG_TEST_CHILD_URL"

func TestMain(m *testing.M) {
	redistest.Child(childURL, child)
	os.Exit(m.Run())
}

const callers = 25 // goroutines of a child

// partner returns the charges of a call: at most 25 in any 5 seconds and 300 in any minute.
func partner() []gcra.Charge {
	return []gcra.Charge{
		{Subject: "partner", Policy: "short", Limit: gcra.Limit{Count: 25, Per: 5 * time.Second}, Cost: 1},
		{Subject: "partner", Policy: "long", Limit: gcra.PerMinute(300), Cost: 1},
	}
}

// child calls Take from many goroutines until its input ends, then writes how many calls passed.
func child(url string, in io.Reader, out io.Writer) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}

	o.ReadTimeout = patience
	client := redis.NewClient(o)
	defer client.Close()
	r, err := slidinglog.New(client, config{Timeout: patience})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()

	var passed, failed atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				charges := partner()
				allowed, err := r.Take(context.Background(), charges)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					failed.Add(1)
					return
				}

				if allowed {
					passed.Add(1)
				}
				time.Sleep(20 * time.Millisecond) // leaves some CPU time to other tests
			}
		})
	}

	wg.Wait()
	if failed.Load() > 0 {
		return fmt.Errorf("%d calls failed", failed.Load())
	}
	_, err = fmt.Fprintln(out, passed.Load())
	return err
}

// A hundred callers in four processes call all the time. At most 25 calls pass in any 5 seconds of the
// server's clock and 300 in any minute, and no fewer than the limits allow. With RATELIMIT_LONG set the
// test takes two minutes.
func TestPartner(t *testing.T) {
	lasting := 7 * time.Second
	if os.Getenv("RATELIMIT_LONG") != "" {
		lasting = 2 * time.Minute
	} else if testing.Short() {
		t.Skip("takes seven seconds")
	}

	t.Parallel()
	server := redistest.Start(t)
	var processes [4]*redistest.Process
	for i := range processes {
		processes[i] = redistest.StartProcess(t, childURL, server.URL())
	}

	// The log of the minute has the time of each call that passed.
	client := patient(t, server)
	seen := make(map[int64]time.Duration)
	read := func() {
		for _, c := range charges(t, client, "sl:{partner}:long") {
			seen[c.start] = time.Duration(c.at) * time.Microsecond
		}
	}

	for deadline := time.Now().Add(lasting); time.Now().Before(deadline); time.Sleep(time.Second) {
		read()
	}

	total := 0
	for _, p := range processes {
		p.CloseInput()
		n, err := strconv.Atoi(p.Read())
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	read()

	var times []time.Duration
	for _, at := range seen {
		times = append(times, at)
	}

	slices.Sort(times)
	if len(times) != total {
		t.Errorf("%d calls passed and %d were logged; want as many", total, len(times))
	}

	if err := tooMany(times, 25, 5*time.Second); err != nil {
		t.Error(err)
	}
	if err := tooMany(times, 300, time.Minute); err != nil {
		t.Error(err)
	}

	// One window less than the time has: the last may have begun when the children ended.
	if least := 25 * int(lasting/(5*time.Second)); total < least {
		t.Errorf("%d calls passed in %v; want at least %d", total, lasting, least)
	}
	t.Logf("%d calls passed in %v", total, lasting)
}
