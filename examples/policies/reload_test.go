package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/examples/internal/process"
)

const (
	alice = "X-API-Key: demo-alice"
	bob   = "X-API-Key: demo-bob"
)

// A change of the file takes effect under traffic, and keys keep what they have
// used.
func TestReload(t *testing.T) {
	t.Parallel()
	p, path, text := start(t)
	p.Says("Policies of " + path + ": hello 10/minute, login 5/minute, burst 5/second, report 5/second, daily 100/day or by plan, everybody 300/minute burst 50 (shadow)\n")
	for n, want := range []string{"9", "8", "7", "6"} {
		if answer := p.Get("/hello"); process.Status(answer) != 200 || process.Header(answer, "RateLimit-Remaining") != want {
			t.Errorf("hello %d: got %q; want 200 and %s remaining", n+1, answer, want)
		}
	}

	var done atomic.Bool
	var load sync.WaitGroup
	load.Go(func() {
		for !done.Load() {
			if answer := p.Get("/healthz"); process.Status(answer) != 200 {
				t.Errorf("a request during the change: got %q; want 200", answer)
				return
			}
		}
	})

	write(t, path, strings.Replace(text, "10/minute", "10/minute burst 5", 1))
	p.Says(": hello 10/minute burst 5,")
	done.Store(true)
	load.Wait()
	if answer := p.Get("/hello"); process.Status(answer) != 200 || process.Header(answer, "RateLimit-Remaining") != "0" {
		t.Errorf("hello 5 of 5: got %q; want 200 and 0 remaining", answer)
	}
	if answer := p.Get("/hello"); process.Status(answer) != 429 {
		t.Errorf("hello 6 of 5: got %q; want 429", answer)
	}
}

// A broken file changes nothing and is reported with lines and columns; once
// repaired it takes effect. SIGHUP reads the file at once, changed or not.
func TestReloadBroken(t *testing.T) {
	t.Parallel()
	p, path, text := start(t)
	p.Says("Policies of ")

	write(t, path, strings.NewReplacer("10/minute", "10/minit", "on_failure: closed", "on_failure: shut").Replace(text))
	p.Says("Policies stay as they were:\n" +
		path + `:12:12: limit is "10/minit": period is "minit"; want second, minute, hour, day or a duration such as 5s` + "\n" +
		path + `:18:17: on_failure is "shut"; want closed, local or open` + "\n")
	if answer := p.Get("/hello"); process.Header(answer, "RateLimit-Limit") != "10" {
		t.Errorf("hello: got %q; want the limit before", answer)
	}

	write(t, path, strings.Replace(text, "10/minute", "7/minute", 1))
	p.Says(": hello 7/minute,")
	p.Signal(syscall.SIGHUP)
	p.SaysTimes(": hello 7/minute,", 2)
	if answer := p.Get("/hello"); process.Header(answer, "RateLimit-Limit") != "7" {
		t.Errorf("hello: got %q; want the new limit", answer)
	}
}

// The names that the program registers are known in the file: keys, a cost and
// plans.
func TestFuncs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, "policies:\n"+
		"- {name: route, key: route, limit: 1000/day}\n"+
		"- {name: plan, key: [user, client], plans: {free: 100/day, pro: 500/day}, cost: work}\n")

	p := process.Start(t, "-policies", path)
	for _, step := range []struct {
		name, target string
		headers      []string
		remaining    string
	}{
		{"a report costs 3", "/report", []string{alice}, "97"},
		{"another request of the user", "/me", []string{alice}, "96"},
		{"another user, of plan pro", "/me", []string{bob}, "499"},
		{"an anonymous client, by address and the slowest plan", "/me", nil, "99"},
		{"an unknown key, too", "/me", []string{"X-API-Key: x"}, "98"},
	} {
		if answer := p.Get(step.target, step.headers...); process.Header(answer, "RateLimit-Remaining") != step.remaining {
			t.Errorf("%s: got %q; want %s remaining", step.name, answer, step.remaining)
		}
	}
}

// closing is a terminal that closes after the greeting.
type closing struct {
	process.Output
	closed chan struct{}
	once   sync.Once
}

func (c *closing) Write(b []byte) (int, error) {
	if strings.Contains(c.String(), "Ctrl-C") {
		c.once.Do(func() { close(c.closed) })
		return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EIO}
	}
	return c.Output.Write(b)
}

// SIGHUP does not end the server, so a closed terminal does.
func TestTerminalCloses(t *testing.T) {
	out := &closing{closed: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- run([]string{"-addr", "127.0.0.1:0", "-policies", "policies.yaml"}, out) }()
	select {
	case err := <-ended:
		select {
		case <-out.closed:
		default:
			t.Fatalf("it ends with %v before its terminal does", err)
		}
		if err != nil {
			t.Errorf("got %v; want no error", err)
		}
	case <-time.After(process.Patience):
		t.Fatal("it goes on without its terminal")
	}
}
