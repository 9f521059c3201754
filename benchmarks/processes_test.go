package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// These variables make the test binary one of several processes.
const (
	askingVar   = "RATELIMIT_BENCH_ASKING"   // the address of Redis and a contestant
	waitingVar  = "RATELIMIT_BENCH_WAITING"  // the URLs of Redis and of the partner
	delayingVar = "RATELIMIT_BENCH_DELAYING" // how far away, and the address of Redis
)

func TestMain(m *testing.M) {
	redistest.Child(askingVar, askingProcess)
	redistest.Child(waitingVar, waitingProcess)
	redistest.Child(delayingVar, delayingProcess)
	os.Exit(m.Run())
}

// BenchmarkHotKeyOfFour is one key that four processes of 64 callers ask about.
func BenchmarkHotKeyOfFour(b *testing.B) {
	for _, c := range []contestant{{ours, newOurs}, {redisRate, newRedisRate}} {
		b.Run("limiter="+c.name, func(b *testing.B) {
			d := oneRedis(b)
			c.mustKeep(b, d, tight)
			processes := make([]*redistest.Process, 4)
			for i := range processes {
				processes[i] = redistest.StartProcess(b, askingVar, d.nodes[0].Addr+" "+c.name)
			}

			together := func(each int) {
				for _, p := range processes {
					p.Write(strconv.Itoa(each))
				}
				for _, p := range processes {
					p.Read()
				}
			}
			together(askingCallers) // they connect

			b.Run(fmt.Sprintf("callers=%d", len(processes)*askingCallers), func(b *testing.B) {
				each := (b.N + len(processes) - 1) / len(processes)
				before := d.cpu(b)
				b.ResetTimer()
				together(each)
				b.StopTimer()
				d.reportCPU(b, before, each*len(processes))
			})
		})
	}
}

const askingCallers = 64

// askingProcess makes as many checks as each line of its input says.
func askingProcess(arg string, in io.Reader, out io.Writer) error {
	addr, name, _ := strings.Cut(arg, " ")
	d := deployed(nil, func(func()) {}, func() redis.UniversalClient { return newClient(addr) })
	i := slices.IndexFunc(onRedis, func(c contestant) bool { return c.name == name })
	caller, err := onRedis[i].build(d, endless)
	if err != nil {
		return err
	}

	lines := bufio.NewScanner(in)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err == nil {
			err = ask(caller, askingCallers, n, []string{"hot"})
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "done")
	}
	return lines.Err()
}

// The processes, with a number of goroutines each, call one partner, one at a time, a turn
// apart.
const (
	waitingProcesses = 8
	waiters          = 20
	turn             = time.Second
)

// BenchmarkWait is the least time between two calls that a partner receives. An op is a call.
func BenchmarkWait(b *testing.B) {
	calls := make(chan time.Time, waitingProcesses*waiters)
	partner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if at := time.Now(); r.URL.Path != connecting {
			calls <- at
		}
	}))

	b.Cleanup(partner.Close)
	server := redistest.Start(b)
	for range waitingProcesses {
		redistest.StartProcess(b, waitingVar, server.URL()+" "+partner.URL).Read()
	}

	b.Run("limiter="+ours, func(b *testing.B) {
		for len(calls) > 0 { // those while processes were starting
			<-calls
		}

		const gaps = 3
		least, last := slow, <-calls
		for range gaps * b.N {
			at := <-calls
			least, last = min(least, at.Sub(last)), at
		}
		b.ReportMetric(float64(least), "least-gap-ns")
		b.ReportMetric(0, "ns/op")
	})
}

// waitingProcess calls the partner until its input ends.
func waitingProcess(urls string, in io.Reader, out io.Writer) error {
	redisURL, partner, _ := strings.Cut(urls, " ")
	store, _, err := openStore(redisURL, patience)
	if err != nil {
		return err
	}
	defer store.Close()

	// Connect before the first turn, as a process that has run for a while.
	if err := get(partner + connecting); err != nil {
		return err
	}
	if err := store.Ping(context.Background()); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")

	charge := gcra.Charge{Subject: "partner", Policy: policy, Limit: gcra.Limit{Count: 1, Per: turn}, Cost: 1}
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
