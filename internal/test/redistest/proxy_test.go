package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// proxied is a proxy to a new server, and a client that goes through it and
// tries everything once. Called by one goroutine it keeps to one connection. It
// checks that the proxy leaves nothing behind.
func proxied(t *testing.T) (*Proxy, *Server, *redis.Client) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	s := Start(t)
	p := NewProxy(t, s.Addr)
	c := once(t, p, 0)
	if err := c.Set(t.Context(), "k", "value", 0).Err(); err != nil {
		t.Fatalf("SET through the proxy: %v", err)
	}
	return p, s, c
}

// once is a client that goes through the proxy and tries everything once.
func once(t *testing.T, p *Proxy, readTimeout time.Duration) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: p.Addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: readTimeout, ContextTimeoutEnabled: true,
		// When as many dials as this have failed the pool would no longer dial when
		// asked, but from a goroutine that sleeps for a second, even after Close.
		PoolSize:                 10_000,
		MaintNotificationsConfig: noMaintenance(),
	})
	closeAtCleanup(t, c)
	return c
}

// ping is a connection on which a PING has been sent. A test that is after what
// comes back uses it: go-redis peeks at a connection before it reads, and sees
// an RST as EOF.
func ping(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	return conn
}

// works fails the test unless a command passes.
func works(t *testing.T, c *redis.Client) {
	t.Helper()
	if got, err := c.Get(t.Context(), "k").Result(); err != nil || got != "value" {
		t.Errorf("GET: got %q, %v; want value", got, err)
	}
}

// within is a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// Requests and replies of any size pass unchanged, and are counted.
func TestProxyPass(t *testing.T) {
	p, _, c := proxied(t)
	works(t, c)
	const size = 1 << 20
	if err := c.Set(t.Context(), "large", string(make([]byte, size)), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), "large").Result(); err != nil || len(got) != size {
		t.Errorf("GET: got %d bytes, %v; want %d", len(got), err, size)
	}
	if n := p.Connections(); n != 1 {
		t.Errorf("Connections: got %d; want 1", n)
	}
	if n := p.RequestBytes(); n < size || n > size+4096 {
		t.Errorf("RequestBytes: got %d; want %d and a little more", n, size)
	}
}

// A delayed reply comes late and complete; the next mode delays no more.
func TestProxyDelay(t *testing.T) {
	p, _, c := proxied(t)
	const d = 100 * time.Millisecond
	p.Delay(d)
	start := time.Now()
	works(t, c)
	if took := time.Since(start); took < d {
		t.Errorf("GET took %v; want at least %v", took, d)
	}
	if err := c.Get(within(t, d/4), "k").Err(); !isTimeout(err) {
		t.Errorf("GET with less patience: got %v; want a timeout", err)
	}
	p.Pass()
	works(t, c)
}

// In a blackhole neither an open nor a new connection gets an answer, and no
// command reaches the server.
func TestProxyBlackhole(t *testing.T) {
	p, s, c := proxied(t)
	p.Blackhole()
	for _, conn := range []string{"open", "new"} {
		if err := c.Incr(within(t, 50*time.Millisecond), "n").Err(); !isTimeout(err) {
			t.Errorf("INCR on the %s connection: got %v; want a timeout", conn, err)
		}
	}
	Eventually(t, patience, "the second connection", func() bool { return p.Connections() == 2 })
	p.Pass()
	works(t, c)
	if n, err := s.Client().Exists(t.Context(), "n").Result(); err != nil || n != 0 {
		t.Errorf("EXISTS: got %d, %v; want 0", n, err)
	}
}

// A reply that is in flight when the blackhole begins is lost.
func TestProxyBlackholeTakesDelayedReply(t *testing.T) {
	p, s, c := proxied(t)
	for d := 200 * time.Millisecond; ; d *= 2 {
		p.Delay(d)
		start := time.Now()
		got := make(chan error)
		go func() { got <- c.RPush(within(t, 2*d), "n", 1).Err() }()
		Eventually(t, patience, "the command to run", func() bool {
			return s.Client().LLen(t.Context(), "n").Val() > 0
		})
		p.Blackhole()
		inTime := time.Since(start) < d
		err := <-got
		p.Pass()
		works(t, c)
		switch {
		case inTime && !isTimeout(err):
			t.Fatalf("RPUSH: got %v; want a timeout", err)
		case inTime:
			return
		}
		// A busy machine: the reply may have been there before the hole.
		s.Client().Del(t.Context(), "n")
	}
}

// A proxy that refuses connections is a port without a listener, until it is back.
func TestProxyRefuse(t *testing.T) {
	p, _, c := proxied(t)
	p.Refuse()
	for range 2 { // the open connection, which go-redis finds broken, and a new one
		if err := c.Get(t.Context(), "k").Err(); err == nil {
			t.Error("GET: got an answer")
		}
	}
	if conn, err := net.Dial("tcp", p.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial: got %v, %v; want %v", conn, err, syscall.ECONNREFUSED)
	}
	p.Pass()
	works(t, c)
}

// A reset is an RST, also to a waiting client, and changes no mode.
func TestProxyReset(t *testing.T) {
	p, s, c := proxied(t)
	s.Pause()
	sent := p.RequestBytes()
	conn := ping(t, p)
	Eventually(t, patience, "the request to be sent", func() bool { return p.RequestBytes() > sent })
	p.Reset()
	if got, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Reset: got %q, %v; want %v", got, err, syscall.ECONNRESET)
	}
	s.Resume()
	works(t, c)
}

// A reply is cut in its middle, on a connection made for it too.
func TestProxyCutAfter(t *testing.T) {
	p, _, c := proxied(t)
	for n := range len("$5\r\nvalue\r\n") {
		p.CutAfter(n)
		for _, conn := range []string{"open", "new"} {
			if got, err := c.Get(t.Context(), "k").Result(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("GET on the %s connection cut after %d bytes: got %q, %v; want %v", conn, n, got, err, io.EOF)
			}
		}
		p.Pass()
		works(t, c)
	}
}

// Of a cut reply the client gets the given number of bytes.
func TestProxyCutAfterIsExact(t *testing.T) {
	p, _, _ := proxied(t)
	p.CutAfter(4)
	if got, err := io.ReadAll(ping(t, p)); err != nil || string(got) != "+PON" {
		t.Errorf("got %q, %v; want %q and the end", got, err, "+PON")
	}
}

// A command whose reply is dropped has run, on an open connection and on a new
// one, as often as was asked for and no more.
func TestProxyDropReply(t *testing.T) {
	p, s, c := proxied(t)
	const n = 3
	p.DropReply(n)
	for i := range n {
		if err := c.Incr(t.Context(), "n").Err(); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("INCR %d: got %v; want %v", i, err, syscall.ECONNRESET)
		}
	}
	works(t, c)
	if got, err := s.Client().Get(t.Context(), "n").Int(); err != nil || got != n {
		t.Errorf("n on the server: got %d, %v; want %d", got, err, n)
	}
	if got := p.Dropped(); got != n {
		t.Errorf("Dropped: got %d; want %d", got, n)
	}
	if got := p.Connections(); got != 1+n {
		t.Errorf("Connections: got %d; want %d", got, 1+n)
	}

	p.DropReply(1)
	if got, err := io.ReadAll(ping(t, p)); len(got) != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("PING: got %q, %v; want nothing and %v", got, err, syscall.ECONNRESET)
	}
}

// By default go-redis runs such a command again, which the proxy shows.
func TestProxyDropReplyRetried(t *testing.T) {
	p, s, _ := proxied(t)
	o := s.Options()
	o.Addr = p.Addr
	c := redis.NewClient(o)
	closeAtCleanup(t, c)
	p.DropReply(2)
	if got, err := c.Incr(t.Context(), "n").Result(); err != nil || got != 3 {
		t.Errorf("INCR: got %d, %v; want 3, as the first two got lost", got, err)
	}
}

// A proxy may be there before its server, and outlives it.
func TestProxyServerDown(t *testing.T) {
	p, s, c := proxied(t)
	s.Kill()
	for range 2 {
		if err := c.Get(t.Context(), "k").Err(); err == nil {
			t.Error("GET: got an answer")
		}
	}
	s.Restart()
	if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET: got %v; want %v", err, redis.Nil)
	}
	if n := p.Connections(); n < 2 {
		t.Errorf("Connections: got %d; want at least 2", n)
	}
}

// Modes may change while connections are busy.
func TestProxyChangesUnderLoad(t *testing.T) {
	p, _, _ := proxied(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := once(t, p, 20*time.Millisecond)
	var calls atomic.Int64
	done := make(chan int)
	const callers = 8
	for range callers {
		go func() {
			wrong := 0
			for ; ctx.Err() == nil; calls.Add(1) {
				if got, err := c.Get(ctx, "k").Result(); err == nil && got != "value" {
					wrong++
				}
			}
			done <- wrong
		}()
	}
	for range 5 {
		for _, change := range []func(){
			p.Pass, func() { p.Delay(time.Millisecond) }, p.Blackhole, p.Refuse, p.Reset,
			func() { p.CutAfter(7) }, func() { p.DropReply(3) },
		} {
			change()
			some := calls.Load() + 2*callers
			Eventually(t, patience, "some calls in this mode", func() bool { return calls.Load() >= some })
		}
	}
	cancel()
	for range callers {
		if wrong := <-done; wrong != 0 {
			t.Errorf("got %d wrong answers; want errors or right ones", wrong)
		}
	}
	p.Pass()
	Eventually(t, patience, "the proxy to pass again", func() bool {
		return c.Get(t.Context(), "k").Val() == "value"
	})
}
