package redistest

import (
	"testing"
	"time"
)

// Of lost requests none reaches the server; of lost replies each has run. The
// connection stays open, and works after the loss.
func TestProxyLose(t *testing.T) {
	for _, lost := range []struct {
		requests, replies float64
		runs              bool
	}{{1, 0, false}, {0, 1, true}} {
		p, s, c := proxied(t)
		conn := ping(t, p)
		reply := make([]byte, len("+PONG\r\n"))
		if _, err := conn.Read(reply); err != nil {
			t.Fatal(err)
		}
		p.Lose(lost.requests, lost.replies)
		if err := c.RPush(within(t, 200*time.Millisecond), "n", 1).Err(); !isTimeout(err) {
			t.Errorf("%+v: RPUSH: got %v; want a timeout", lost, err)
		}
		p.Pass()
		if n, err := s.Client().LLen(t.Context(), "n").Result(); err != nil || (n == 1) != lost.runs {
			t.Errorf("%+v: LLEN: got %d, %v; want that the command has run: %v", lost, n, err, lost.runs)
		}
		if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(reply); err != nil || string(reply) != "+PONG\r\n" {
			t.Errorf("%+v: PING after the loss: got %q, %v", lost, reply, err)
		}
	}
}

// A share of the pieces is lost, not all and not none.
func TestProxyLosesAShare(t *testing.T) {
	m := mode{fault: lose}
	lost := 0
	for range 10_000 {
		if m.loses(0.3) {
			lost++
		}
	}
	if lost < 2500 || lost > 3500 {
		t.Errorf("%d of 10,000 pieces lost; want some 3,000", lost)
	}
}

// A segment that is sent again is late in each direction and arrives.
func TestProxyResend(t *testing.T) {
	p, _, c := proxied(t)
	const d = 50 * time.Millisecond
	p.Resend(1, d)
	start := time.Now()
	works(t, c)
	if took := time.Since(start); took < 2*d {
		t.Errorf("GET took %v; want at least %v", took, 2*d)
	}
	p.Resend(0, time.Hour)
	works(t, c)
}

func TestProxyDelayBetween(t *testing.T) {
	p, _, c := proxied(t)
	const least, most = 20 * time.Millisecond, 60 * time.Millisecond
	p.DelayBetween(least, most)
	start := time.Now()
	works(t, c)
	if took := time.Since(start); took < least {
		t.Errorf("GET took %v; want at least %v", took, least)
	}
	m := mode{delay: least, spread: most - least}
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := m.someDelay()
		if seen[d] = true; d < least || d > most {
			t.Fatalf("got a delay of %v; want %v to %v", d, least, most)
		}
	}
	if len(seen) < 100 {
		t.Errorf("%d different delays of 1,000; want many", len(seen))
	}
}

// A reply of 1,000 bytes at 5,000 a second takes 200 ms.
func TestProxyBandwidth(t *testing.T) {
	p, s, c := proxied(t)
	const size, perSecond = 1000, 5000
	if err := s.Client().Set(t.Context(), "large", string(make([]byte, size)), 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.Bandwidth(perSecond)
	start := time.Now()
	if got, err := c.Get(t.Context(), "large").Result(); err != nil || len(got) != size {
		t.Errorf("GET: got %d bytes, %v; want %d", len(got), err, size)
	}
	if took, least := time.Since(start), time.Second*size/perSecond; took < least {
		t.Errorf("GET took %v; want at least %v", took, least)
	}
	p.Pass()
	works(t, c)
}

// A half-open connection is silent both ways, and a new one works.
func TestProxyHalfOpen(t *testing.T) {
	p, s, c := proxied(t)
	p.HalfOpen()
	if err := c.Incr(within(t, 50*time.Millisecond), "n").Err(); !isTimeout(err) {
		t.Errorf("INCR on the open connection: got %v; want a timeout", err)
	}
	works(t, c)
	if n, err := s.Client().Exists(t.Context(), "n").Result(); err != nil || n != 0 {
		t.Errorf("EXISTS: got %d, %v; want 0", n, err)
	}
	if n := p.Connections(); n != 2 {
		t.Errorf("%d connections; want 2", n)
	}
}

// After a move an open connection is reset, and a new one leads to the other server.
func TestProxyMove(t *testing.T) {
	p, _, c := proxied(t)
	other := Start(t)
	if err := other.Client().Set(t.Context(), "k", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := other.Client().Set(t.Context(), "only here", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	p.Move(other.Addr)
	Eventually(t, patience, "the client to find the other server", func() bool {
		return c.Get(t.Context(), "only here").Val() == "value"
	})
	works(t, c)
}
