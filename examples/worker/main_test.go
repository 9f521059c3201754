package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// child makes this test binary the program.
const child = "WORKER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const patience = 30 * time.Second

// process is a worker under test.
type process struct {
	cmd *exec.Cmd

	mu  sync.Mutex
	out bytes.Buffer
	err bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), exe, args...)}
	p.cmd.Env = append(os.Environ(), child+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// end waits for the process and returns its exit code and what it wrote.
func (p *process) end(t *testing.T) (code int, out, errs string) {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), p.text(), p.err.String()
}

var task = regexp.MustCompile(`(?m)^(\d\d:\d\d:\d\d\.\d{6})  worker (\d+), task (\d+)$`)

const clock = "15:04:05.000000"

// tasks returns the times of the lines of -v since begin, sorted.
func tasks(t *testing.T, begin time.Time, outs ...string) (at []time.Duration) {
	t.Helper()
	midnight, err := time.Parse(clock, begin.Format(clock))
	if err != nil {
		t.Fatal(err)
	}

	for _, out := range outs {
		for _, found := range task.FindAllStringSubmatch(out, -1) {
			when, err := time.Parse(clock, found[1])
			if err != nil {
				t.Fatal(err)
			}
			if when.Before(midnight) {
				when = when.Add(24 * time.Hour)
			}
			at = append(at, when.Sub(midnight))
		}
	}

	slices.Sort(at)
	return at
}

// Two processes on one Redis keep to the rate together. No task begins before its turn, and a second has
// at most as many tasks as turns and one late task for each worker. When one process is stopped, the other
// takes over its share.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	const (
		rate    = 20
		turn    = time.Second / rate
		workers = 2
		queue   = 20
	)

	server := redistest.Start(t)
	store, err := redisstore.New(server.Client(), redisstore.Config{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}

	// With a queue at the start, the times of turns are known.
	charge := gcra.Charge{Subject: "worker", Policy: "tasks", Limit: gcra.PerSecond(rate).WithBurst(1), Cost: 1, MaxDelay: 366 * 24 * time.Hour, MaxWait: 366 * 24 * time.Hour}
	begin := time.Now()
	for range queue {
		if r, err := gcra.Take(t.Context(), store, charge); err != nil || !r.Allowed {
			t.Fatalf("%+v, %v", r, err)
		}
	}

	args := []string{"-redis", server.URL(), "-rate", fmt.Sprintf("%d/second", rate), "-workers", fmt.Sprint(workers), "-work", "5ms", "-v"}
	a := start(t, append(args, "-tasks", "0")...)
	b := start(t, append(args, "-tasks", "60")...)
	redistest.Eventually(t, patience, "both to do tasks", func() bool {
		return len(tasks(t, begin, a.text())) >= 10 && len(tasks(t, begin, b.text())) >= 10
	})
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	signaled := time.Now()
	code, outA, errs := a.end(t)
	if code != 0 || errs != "" || !strings.Contains(outA, "Stopped: ") {
		t.Errorf("after SIGTERM: got exit %d, error %q and\n%s\nwant 0, none and Stopped", code, errs, outA)
	}
	if took := time.Since(signaled); took > 5*time.Second {
		t.Errorf("it stopped %v after SIGTERM; want at once", took)
	}

	code, outB, errs := b.end(t)
	if code != 0 || errs != "" || !strings.Contains(outB, "Finished: 60 of 60 tasks") || !strings.Contains(outB, "in the last second") {
		t.Errorf("got exit %d, error %q and\n%s\nwant 0, none and 60 tasks", code, errs, outB)
	}
	at := tasks(t, begin, outA, outB)
	if n := len(tasks(t, begin, outB)); n != 60 || len(at) < 70 {
		t.Fatalf("got %d lines of tasks, %d of the second; want 60 of that and 10 more", len(at), n)
	}

	for k := range at {
		// The clock of the lines and that of Redis are read to the microsecond.
		if early := time.Duration(queue+k)*turn - at[k]; early > 10*time.Microsecond {
			t.Errorf("task %d begins %v before its turn", k, early)
		}
		last := k
		for last+1 < len(at) && at[last+1]-at[k] < time.Second {
			last++
		}

		if n := last - k + 1; n > rate+1+2*workers {
			t.Errorf("%d tasks begin within %v; want at most %d and %d late ones", n, at[last]-at[k], rate+1, 2*workers)
		}
	}
	t.Logf("%d tasks in %v", len(at), at[len(at)-1]-at[0])
}

// A signal ends the process at once, also while it waits for a turn or for Redis. An error of Redis is
// printed once.
func TestSignal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, ready string
		args        []string
		signal      os.Signal
	}{
		{"waiting", "worker 1, task", []string{"-rate", "1/day", "-workers", "1", "-v"}, os.Interrupt},
		{"working", "worker 1, task", []string{"-work", "1h", "-workers", "1", "-v"}, syscall.SIGTERM},
		{"without Redis", "No turns until Redis works", []string{"-redis", "redis://user:hunter2@127.0.0.1:1"}, os.Interrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tt.args...)
			redistest.Eventually(t, patience, "it to begin", func() bool { return strings.Contains(p.text(), tt.ready) })
			if err := p.cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}

			signaled := time.Now()
			code, out, errs := p.end(t)
			if code != 0 || errs != "" || !strings.Contains(out, "Stopped: 0 of") && !strings.Contains(out, "Stopped: 1 of") {
				t.Errorf("got exit %d, error %q and\n%s\nwant 0, none and Stopped", code, errs, out)
			}

			if took := time.Since(signaled); took > 5*time.Second {
				t.Errorf("it took %v; want at once", took)
			}
			if strings.Count(out, tt.ready) != 1 || strings.Contains(out, "hunter2") {
				t.Errorf("got\n%s\nwant %q once and no password", out, tt.ready)
			}
		})
	}
}

// Tasks wait while Redis does not answer, also those of workers that had a slot before. One
// line says that turns stop and one that they come again.
func TestRedisComesBack(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	p := start(t, "-redis", "redis://"+proxy.Addr, "-rate", "20/second", "-workers", "30", "-tasks", "120", "-work", "0s", "-v")
	redistest.Eventually(t, patience, "a line of progress", func() bool { return strings.Contains(p.text(), "in the last second") })
	proxy.Refuse()
	redistest.Eventually(t, patience, "the error", func() bool { return strings.Contains(p.text(), "No turns until Redis works") })
	lines := strings.Count(p.text(), "in the last second")
	redistest.Eventually(t, patience, "slots to pass", func() bool { return strings.Count(p.text(), "in the last second") >= lines+3 })
	proxy.Pass()
	code, out, errs := p.end(t)
	if code != 0 || errs != "" || !strings.Contains(out, "Finished: 120 of 120 tasks") {
		t.Errorf("got exit %d, error %q and\n%s\nwant 0, none and all tasks", code, errs, out)
	}

	stop, back, found := strings.Cut(out, "No turns until Redis works")
	gone, _, again := strings.Cut(back, "Turns come again.")
	if !found || !again || strings.Count(out, "No turns") != 1 || strings.Count(out, "Turns come") != 1 {
		t.Errorf("got\n%s\nwant one line when turns stop and one when they come again", out)
	}
	if n := len(task.FindAllString(gone, -1)); len(task.FindAllString(stop, -1)) == 0 || n > 2 {
		t.Errorf("%d tasks begin while there are no turns; want none but the last before the error", n)
	}
}

// Without -redis the process prints that the rate is its own, and its progress once a second. No turn is at
// a whole second, when progress is printed.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-rate", "10/1.1s", "-workers", "4", "-tasks", "25", "-work", "0s"}, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"4 workers, process ", "10/1.1s burst 1 for this process alone; -redis shares it with others.\n",
			"    1s  10", "    2s  19", " in the last second, 4 waiting, 0 working\n",
			"Finished: 25 of 25 tasks done in 2.6s, 9.5 a second.\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got\n%s\nwant %q", out.String(), want)
			}
		}
	})
}

// A burst in -rate applies.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := run(ctx, []string{"-rate", "1/minute burst 7", "-workers", "9", "-tasks", "0"}, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "Stopped: 7 tasks done in 0.5s") {
			t.Errorf("got\n%s\nwant 7 tasks", out.String())
		}
	})
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string // parts of the line
	}{
		{[]string{"-speed", "9"}, []string{"-speed", known}},
		{[]string{"run"}, []string{`"run" is not a flag`, known}},
		{[]string{"-rate", "fast"}, []string{`-rate is "fast"`, "10/second"}},
		{[]string{"-rate", ""}, []string{`-rate is ""`, "10/second"}},
		{[]string{"-rate", "0/second"}, []string{`-rate is "0/second"`}},
		{[]string{"-name", ""}, []string{"-name is empty"}},
		{[]string{"-workers", "0"}, []string{"-workers is 0", "1 to 10000"}},
		{[]string{"-workers", "many"}, []string{"-workers", known}},
		{[]string{"-tasks", "-1"}, []string{"-tasks is -1"}},
		{[]string{"-work", "-1s"}, []string{"-work is -1s"}},
		{[]string{"-redis", "localhost:6379"}, []string{"-redis", "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://user:hunter2@localhost:x"}, []string{"-redis", "redis://localhost:6379/0"}},
		{[]string{"-redis", "redis://user:hunter2/1@localhost"}, []string{"-redis", "%XX"}},
	} {
		code, out, errs := start(t, tt.args...).end(t)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "worker: ") {
			t.Errorf("%q: got exit %d, %q and error %q; want exit 1 and one line of error", tt.args, code, out, errs)
		}
		for _, part := range tt.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%q: got %q; want it to say %q", tt.args, errs, part)
			}
		}

		if strings.Contains(errs, "hunter") {
			t.Errorf("%q: got %q; want no password", tt.args, errs)
		}
	}
}

func TestHelp(t *testing.T) {
	code, out, errs := start(t, "-h").end(t)
	if code != 0 || out != usage || errs != "" {
		t.Errorf("got exit %d, %q and error %q; want the usage", code, out, errs)
	}
	for _, flag := range []string{"-redis", "-rate", "-name", "-workers", "-tasks", "-work ", "-v"} {
		if !strings.Contains(usage, "\n  "+flag) {
			t.Errorf("-h does not explain %s", flag)
		}
	}
}

// While the store fails, no task begins.
func TestNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p := &pool{turns: turns.Turns{Store: failingStore{}}, workers: 3, tasks: 3, out: &lines{w: &out}}
		p.run(ctx)
		if strings.Count(out.String(), "No turns until Redis works: the store fails\n") != 1 || !strings.Contains(out.String(), "Stopped: 0 of 3 tasks") {
			t.Errorf("got\n%s\nwant the error once and no task", out.String())
		}
	})
}

type failingStore struct{}

var errStore = errors.New("the store fails")

func (failingStore) Take(context.Context, []gcra.Charge) (bool, error) { return false, errStore }
func (failingStore) Refund(context.Context, []gcra.Charge) error       { return errStore }
