package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// A million keys take 50 MB, and no command reads many of them. Logged are the times of top, of
// its commands in Redis, and of checks by a limiter on the same Redis, meanwhile and while it is stopped.
func TestTopOfAMillionKeys(t *testing.T) {
	if os.Getenv("RATELIMIT_LONG") == "" {
		t.Skip("takes a minute; RATELIMIT_LONG=1 runs it")
	}
	s := server(t)
	fill(t, s.Client(), 1_000_000)
	store := open(t, s)

	// An operator's machine is another one: here top gets what the limiter and Redis leave it.
	top := func() (*exec.Cmd, *bytes.Buffer) {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", os.Args[0], "top", "-n", "5")
		cmd.Env = append(os.Environ(), "RATELIMIT_TEST_MAIN=1")
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}

	if err := s.Client().ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	cmd, out := top()
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if err := cmd.Run(); err != nil {
			t.Error(err, out.String())
		}
	}()
	checks(ctx, t, store)
	took := time.Since(start)

	used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss / 1024
	t.Logf("top took %v, %v of it on a core, and %d MB", took.Round(time.Millisecond), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), used)
	if used > 50 {
		t.Errorf("got %d MB; want at most 50", used)
	}

	scans := regexp.MustCompile(`cmdstat_scan:calls=(\d+),.*`).FindStringSubmatch(s.Client().Info(t.Context(), "commandstats").Val())
	t.Log(scans[0])
	if n, _ := strconv.Atoi(scans[1]); n < 1_000_000/50 {
		t.Errorf("got %d SCAN; want at most 50 keys by each", n)
	}

	// top runs and is stopped in turns, so that other load on the machine affects both.
	var without, with []time.Duration
	for range 3 {
		cmd, out := top()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()

		for running := true; running; {
			part := checksFor(t, store, 250*time.Millisecond)
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			alone := checksFor(t, store, 250*time.Millisecond)
			_ = cmd.Process.Signal(syscall.SIGCONT)

			select {
			case err := <-ended:
				if err != nil {
					t.Error(err, out.String())
				}
				running = false
			default:
				with, without = append(with, part...), append(without, alone...)
			}
		}
	}

	for _, part := range []float64{0.5, 0.99, 0.999} {
		a, b := quantile(without, part), quantile(with, part)
		t.Logf("checks: p%v %v without, %v meanwhile (%.2f)", 100*part, a, b, float64(b)/float64(a))
	}
}

// checks asks the store a thousand times a second until the context ends, and returns the
// times that it took.
func checks(ctx context.Context, t *testing.T, store *redisstore.Store) (took []time.Duration) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return took
		case <-tick.C:
		}
		start := time.Now()
		if _, err := gcra.Take(t.Context(), store, gcra.Charge{Subject: fmt.Sprint("load", i%1000), Policy: "p", Limit: gcra.PerSecond(1000)}); err != nil {
			t.Error(err)
			return took
		}
		took = append(took, time.Since(start))
	}
}

func checksFor(t *testing.T, store *redisstore.Store, d time.Duration) []time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return checks(ctx, t, store)
}

func quantile(all []time.Duration, part float64) time.Duration {
	slices.Sort(all)
	return all[int(float64(len(all)-1)*part)]
}
