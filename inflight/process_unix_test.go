//go:build unix

package inflight_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// The names of processes.
const (
	holderURL = "INFLIGHT_TEST_HOLDER_URL"
	siteArg   = "INFLIGHT_TEST_SITE"
)

func children() {
	redistest.Child(holderURL, holder)
	redistest.Child(siteArg, siteServer)
}

// holder is a process that takes as many slots of the key as a line says, and writes how many it has got.
func holder(url string, in io.Reader, out io.Writer) error {
	l, err := inflight.Open(url, inflight.Config{Timeout: time.Second})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, os.Getpid())
	var held []*inflight.Slot
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n := 0
		_, _ = fmt.Sscan(lines.Text(), &n)
		for range n {
			if slot, err := l.Acquire(context.Background(), tenant, 4); err == nil {
				held = append(held, slot)
			}
		}
		fmt.Fprintln(out, len(held))
	}
	return l.Close(context.Background())
}

// A process that is killed has its slots for its lease. One that was stopped for longer registers what it still runs when it goes on.
func TestKilledAndStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a lease of 10 s")
	}
	t.Parallel()
	server := redistest.Start(t)
	var processes []*redistest.Process
	pids := make([]int, 2)
	for i := range pids {
		p := redistest.StartProcess(t, holderURL, server.URL())
		if _, err := fmt.Sscan(p.Read(), &pids[i]); err != nil {
			t.Fatal(err)
		}
		p.Write("2")
		if got := p.Read(); got != "2" {
			t.Fatalf("a process has %s slots; want 2", got)
		}
		processes = append(processes, p)
	}

	l := open(t, server.URL(), inflight.Config{Timeout: time.Second})
	begin := time.Now()
	processes[0].Kill()
	if err := syscall.Kill(pids[1], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var slots []*inflight.Slot
	for range 4 {
		slot, err := l.Wait(t.Context(), tenant, 4)
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	if took := time.Since(begin); took < 5*time.Second {
		t.Errorf("the slots were free after %v; want a lease", took)
	}

	if err := syscall.Kill(pids[1], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, ample, "the process that was stopped to register again", func() bool {
		total, err := server.Client().HGet(t.Context(), "if:{"+tenant+"}:slots", "total").Result()
		return err == nil && total[0] == '6'
	})
	processes[1].End() // its Close gives both back
	for _, s := range slots {
		s.Release()
	}
	isFree(t, server.URL(), 4)
}
