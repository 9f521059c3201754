package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// The processes, with a number of goroutines each, call one partner, one at a time, a turn
// apart.
const (
	waitingProcesses = 8
	waiters          = 20
	turn             = time.Second
)

// waitingVar makes this program one of these processes. The value is the URL of Redis
// and that of the partner.
const waitingVar = "RATELIMIT_BENCH_WAITING"

// waitingProcess calls the partner until its input ends.
func waitingProcess(urls string, in io.Reader, out io.Writer) error {
	redisURL, partner, _ := strings.Cut(urls, " ")
	store, err := redisstore.Open(redisURL)
	if err != nil {
		return err
	}
	defer store.Close()
	store.Timeout = patience
	// Connect before the first turn, as a process that has run for a while.
	if err := get(partner + connecting); err != nil {
		return err
	}
	charge := gcra.Charge{Subject: "partner", Policy: policy, Limit: gcra.Limit{Count: 1, Per: turn}, Cost: 1}
	if _, err := gcra.Peek(context.Background(), store, gcra.Charge{Subject: charge.Subject, Policy: charge.Policy, Limit: charge.Limit}); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	done := make(chan error)
	for range waiters {
		go func() {
			for {
				err := turns.Wait(context.Background(), store, charge)
				if err == nil {
					err = get(partner)
				}
				if err != nil {
					done <- err
				}
			}
		}()
	}
	go func() {
		_, err := io.Copy(io.Discard, in)
		done <- err
	}()
	return <-done
}

const connecting = "/connecting"

func get(url string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// runWait measures the time between two calls that a partner receives.
func runWait(ctx context.Context, b *bench) error {
	gaps := 8
	if b.short {
		gaps = 2
	}
	b.say("a partner that %d processes of %d callers call once a second", waitingProcesses, waiters)
	calls := make(chan time.Time, waitingProcesses*waiters)
	partner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if at := time.Now(); r.URL.Path != connecting {
			calls <- at
		}
	}))
	defer partner.Close()
	return withServers(func(t testing.TB) error {
		// The server of the run may hold keys of other stages.
		server := redistest.Start(t)
		for range waitingProcesses {
			redistest.StartProcess(t, waitingVar, server.URL()+" "+partner.URL)
		}
		var last time.Time
		for len(b.gaps) < gaps {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case at := <-calls:
				if !last.IsZero() {
					b.gaps = append(b.gaps, at.Sub(last).Seconds()*1000)
				}
				last = at
			case <-time.After(slow):
				return fmt.Errorf("the partner received no call for %v", slow)
			}
		}
		return nil
	})
}
