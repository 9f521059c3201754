package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a Redis that can be made to fail in the ways
// networks and servers do: here are those that end calls, and proxy_soft.go has those
// that leave it working at times. It begins in [Proxy.Pass]. Each of its methods that
// is named after a fault takes effect at once, for open connections too, and
// stays in effect until another is called. All are safe for concurrent use.
//
// CutAfter and DropReply do not affect the commands that clients send by themselves (HELLO, AUTH,
// CLIENT, SELECT, READONLY, COMMAND, CLUSTER and PING): their replies are forwarded and not
// counted, so that the command under test fails, and neither the connection that a client
// opens to retry it nor the heartbeat of a ring. For this the proxy assumes that requests and
// replies alternate on a connection, as with go-redis.
type Proxy struct {
	Addr string // "127.0.0.1:port", the same after a [Proxy.Refuse]

	t  testing.TB
	wg sync.WaitGroup // accepting, and all links

	mu       sync.Mutex
	target   string
	closed   bool
	mode     mode
	turn     int // number of changes of mode
	listener *net.TCPListener
	links    map[*link]struct{}
	accepted int64
	received int64
	dropped  int64
}

type mode struct {
	fault             fault
	delay             time.Duration
	spread            time.Duration // at most so much is added to delay, at random
	n                 int
	requests, replies float64 // the share of pieces that the fault concerns
}

type fault int

const (
	pass fault = iota
	delay
	blackhole
	refuse
	cutAfter
	dropReply
	lose
	resend
	bandwidth
)

// NewProxy runs a proxy to the server at target, "host:port", which may be down.
// It is closed at cleanup, with all its connections.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, links: make(map[*link]struct{})}
	err := poll(patience, func() error {
		port, err := freePort(false)
		if err != nil {
			return err
		}
		p.Addr = loopback(port)
		return p.listen()
	})
	if err != nil {
		t.Fatalf("starting a proxy to %s: %v", target, err)
	}
	t.Cleanup(p.close)
	return p
}

// listen opens the listener unless it is open.
func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	ln := l.(*net.TCPListener)
	p.listener = ln
	p.wg.Go(func() { p.accept(ln) })
	return nil
}

// hangUp closes the listener; the caller holds p.mu.
func (p *Proxy) hangUp() {
	if p.listener != nil {
		_ = p.listener.Close() // the only error is that it is closed
		p.listener = nil
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.hangUp()
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// set changes the mode.
func (p *Proxy) set(m mode) {
	p.t.Helper()
	p.mu.Lock()
	p.mode = m
	p.turn++
	if m.fault == refuse {
		p.hangUp()
	}

	for l := range p.links {
		// A stream that has lost bytes cannot continue.
		if m.fault == refuse || l.holed && m.fault != blackhole {
			l.reset()
		}
	}
	p.mu.Unlock()

	if m.fault != refuse {
		if err := poll(patience, p.listen); err != nil {
			p.t.Errorf("the proxy at %s cannot listen again: %v", p.Addr, err)
		}
	}
}

// Pass forwards everything. Connections that have lost bytes to [Proxy.Blackhole]
// are reset.
func (p *Proxy) Pass() { p.t.Helper(); p.set(mode{fault: pass}) }

// Delay forwards each piece of a reply d after the server has sent it.
func (p *Proxy) Delay(d time.Duration) { p.t.Helper(); p.set(mode{fault: delay, delay: d}) }

// Blackhole accepts connections and reads requests, but forwards nothing in
// either direction, as if all packets were lost.
func (p *Proxy) Blackhole() { p.t.Helper(); p.set(mode{fault: blackhole}) }

// Refuse closes the listener and resets all connections, as if the server were
// gone. Any other mode listens again on the same port.
func (p *Proxy) Refuse() { p.t.Helper(); p.set(mode{fault: refuse}) }

// CutAfter closes each connection after n more bytes of replies.
func (p *Proxy) CutAfter(n int) { p.t.Helper(); p.set(mode{fault: cutAfter, n: n}) }

// DropReply forwards requests, drops the next n replies and resets their connections:
// the command has run, and the client cannot know. Then the proxy is in [Proxy.Pass]
// again.
func (p *Proxy) DropReply(n int) {
	p.t.Helper()
	if n <= 0 {
		p.Pass()
		return
	}
	p.set(mode{fault: dropReply, n: n})
}

// Reset resets all open connections, once, and leaves the mode as it is.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Connections is the number of connections accepted so far.
func (p *Proxy) Connections() int64 { return p.count(&p.accepted) }

// RequestBytes is the number of bytes that clients have sent so far, forwarded or
// not.
func (p *Proxy) RequestBytes() int64 { return p.count(&p.received) }

// Dropped is the number of replies that [Proxy.DropReply] has dropped so far.
func (p *Proxy) Dropped() int64 { return p.count(&p.dropped) }

func (p *Proxy) count(n *int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *n
}

func (p *Proxy) accept(ln *net.TCPListener) {
	for {
		conn, err := ln.AcceptTCP()
		if err != nil {
			return // hangUp closed it
		}

		p.mu.Lock()
		p.accepted++
		if p.closed || p.mode.fault == refuse {
			resetConn(conn)
			p.mu.Unlock()
			continue
		}

		l := &link{proxy: p, client: conn}
		l.ctx, l.cancel = context.WithCancel(context.Background())
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(l.run)
	}
}
