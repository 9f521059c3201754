package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// ticks is a span as the stored TATs count it, in units of 100 ns.
func ticks(d time.Duration) int64 { return int64(d / 100) }

// shiftTATs moves the stored TATs of a prefix into the future, which to the limiter
// is the same as a Redis clock that goes back by as much.
func shiftTATs(t testing.TB, server *redistest.Server, prefix string, by time.Duration) {
	t.Helper()
	ctx := context.Background()
	it := server.Client().Scan(ctx, 0, prefix+"*", 1000).Iterator()
	n := 0
	for it.Next(ctx) {
		tat, err := server.Client().Get(ctx, it.Val()).Int64()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Client().Set(ctx, it.Val(), tat+ticks(by), time.Hour+max(by, 0)).Err(); err != nil {
			t.Fatal(err)
		}
		n++
	}

	if err := it.Err(); err != nil || n == 0 {
		t.Fatalf("shifting under %s: %d keys, %v", prefix, n, err)
	}
}

// monitored returns the commands that a server runs during f.
func monitored(t testing.TB, server *redistest.Server, f func()) (lines []string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(phase(2*ample, 10*time.Minute))); err != nil {
		t.Fatal(err)
	}
	all := bufio.NewScanner(conn)
	if !all.Scan() || all.Text() != "+OK" {
		t.Fatalf("MONITOR: got %q, %v", all.Text(), all.Err())
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		for all.Scan() && !strings.Contains(all.Text(), `"echo" "the end"`) {
			lines = append(lines, all.Text())
		}
	}()

	f()
	do(t, server, "echo", "the end")
	<-done
	if err := all.Err(); err != nil {
		t.Fatalf("MONITOR: %v", err)
	}
	return lines
}

// commands are the lines of one command, without time and client.
func commands(lines []string, name string) (found []string) {
	for _, l := range lines {
		_, cmd, _ := strings.Cut(l, "] ")
		if strings.HasPrefix(strings.ToLower(cmd), `"`+strings.ToLower(name)+`"`) {
			found = append(found, cmd)
		}
	}
	return found
}

// Application servers may have any clock: they do not send its time. TestClockSkew of
// package redisstore has stores whose clocks differ.
func TestFault36ApplicationClockDoesNotMatter(t *testing.T) {
	apart(t, "the same call at different times")
	server := redistest.Start(t)
	r := rigAt(t, server.URL(), config{Timeout: ample, DenialTTL: -1})
	lines := monitored(t, server, func() {
		for range 3 {
			mustTake(t, r, plenty("same"))
			time.Sleep(5 * time.Millisecond)
		}
	})
	sent := commands(lines, "evalsha")
	if len(sent) != 3 || sent[0] != sent[1] || sent[1] != sent[2] {
		t.Errorf("got commands\n%s\nwant three, all the same", strings.Join(sent, "\n"))
	}
}

// A clock that goes back leaves TATs far in the future. They deny requests for no
// longer than an empty bucket takes to refill.
func TestFault37RedisClockGoesBack(t *testing.T) {
	o := apart(t, "Redis clock back by 1 h and by 30 s")
	server := redistest.Start(t)
	for _, jump := range []time.Duration{30 * time.Second, time.Hour} {
		back(t, o, server, rigAt(t, server.URL(), config{Timeout: ample, DenialTTL: -1}), jump)
	}
}

func back(t *testing.T, o *outcome, server *redistest.Server, r *rig, jump time.Duration) {
	t.Helper()
	limit := gcra.PerSecond(10).WithBurst(5) // full after 500 ms
	alone := gcra.Charge{Subject: "alone", Policy: "p", Limit: limit, Cost: 1}
	with, other := alone, alone
	with.Subject, other.Subject, other.Policy = "with", "with", "q"
	all := [][]gcra.Charge{{alone}, {with, other}}
	for _, charges := range all {
		mustTake(t, r, charges...)
	}
	shiftTATs(t, server, r.Prefix, jump)
	start := time.Now()

	for _, charges := range all {
		for _, c := range mustTake(t, r, charges...) {
			if res := c.Result; res.Allowed || res.RetryAfter > 500*time.Millisecond {
				t.Fatalf("clock back by %v: got %+v; want it denied for 500ms at most", jump, res)
			}
		}
	}

	for _, charges := range all {
		o.recoversWhen(t, 500*time.Millisecond, func() bool {
			o.decided(0)
			return passed(mustTake(t, r, charges...))
		})
	}

	if d := time.Since(start); d > jump/2 {
		t.Errorf("clock back by %v: denied for %v; want 500ms", jump, d)
	}
}

// A clock that jumps ahead fills every bucket, and no more than that.
func TestFault38RedisClockJumpsAhead(t *testing.T) {
	o := apart(t, "Redis clock ahead by 1 h")
	server := redistest.Start(t)
	ahead(t, o, server, rigAt(t, server.URL(), config{Timeout: ample, DenialTTL: -1}), time.Hour)
}

func ahead(t *testing.T, o *outcome, server *redistest.Server, r *rig, jump time.Duration) {
	t.Helper()
	const burst = 5
	c := gcra.Charge{Subject: "hit", Policy: "p", Limit: gcra.Limit{Count: burst, Per: 25 * time.Second}, Cost: 1}
	var allowed int64
	start := time.Now()

	use := func() {
		for range 2 * burst {
			if mustTakeCounted(t, o, r, c) {
				allowed++
			}
		}
	}

	use()
	shiftTATs(t, server, r.Prefix, -jump)
	use()
	refilled := int64(math.Ceil(time.Since(start).Seconds() / 5))
	o.atMost(t, allowed, 2*burst+refilled, fmt.Sprintf("clock ahead by %v", jump))

	if allowed < 2*burst {
		t.Errorf("clock ahead by %v: %d allowed; want %d, twice the burst", jump, allowed, 2*burst)
	}
}

func mustTakeCounted(t *testing.T, o *outcome, s gcra.Store, c gcra.Charge) bool {
	t.Helper()
	res, err := o.take(s, c)
	if err != nil {
		t.Fatalf("taking from %s: %v", c.Subject, err)
	}
	return res.Allowed
}
