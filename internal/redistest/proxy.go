package redistest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a Redis that can be made to fail in the ways
// networks and servers do (proxy_soft.go has the faults that leave it working at times). It begins in [Proxy.Pass]. Each of its methods that
// is named after a fault takes effect at once, for open connections too, and
// stays in effect until another is called. All are safe for concurrent use.
//
// CutAfter and DropReply do not affect the handshake of a connection (HELLO, AUTH,
// CLIENT, SELECT, READONLY, COMMAND and CLUSTER): its replies are forwarded and not
// counted, so that the command under test fails and not the connection that a client
// opens to retry it. For this the proxy assumes that requests and replies alternate
// on a connection, as with go-redis.
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
	p.start(func() error {
		port, err := freePort(false)
		if err != nil {
			return err
		}
		p.Addr = loopback(port)
		return p.listen()
	})
	return p
}

// NewProxyOn is NewProxy with an address of its own, "host:port".
func NewProxyOn(t testing.TB, addr, target string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: addr, t: t, target: target, links: make(map[*link]struct{})}
	p.start(p.listen)
	return p
}

func (p *Proxy) start(listen func() error) {
	p.t.Helper()
	if err := poll(patience, listen); err != nil {
		p.t.Fatalf("starting a proxy to %s: %v", p.target, err)
	}
	p.t.Cleanup(p.close)
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

// link is a client's connection and its connection to the server.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // done when the link has ended
	cancel context.CancelFunc

	// These are guarded by proxy.mu.
	server    *net.TCPConn // nil until the first request that is forwarded
	holed     bool         // bytes have been lost
	handshake bool         // the last request was part of the handshake
	turn      int          // the mode's, when passed was last zero
	passed    int          // bytes of reply towards cutAfter
	sent      time.Time    // when bandwidth is free for the next request
	replied   time.Time    // when it is free for the next reply
}

// piece is a part of a reply on its way to the client.
type piece struct {
	data []byte
	due  time.Time
}

// reset ends the link with an RST to both sides; the caller holds proxy.mu.
func (l *link) reset() { l.end(resetConn) }

// end ends the link; the caller holds proxy.mu.
func (l *link) end(how func(*net.TCPConn)) {
	if l.ctx.Err() != nil {
		return
	}
	l.cancel()
	delete(l.proxy.links, l)
	how(l.client)
	if l.server != nil {
		how(l.server)
	}
}

// hangUp closes both connections of the link.
func (l *link) hangUp() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.end(func(c *net.TCPConn) { _ = c.Close() })
}

// resetConn closes a connection with an RST: what is in its buffers is lost.
func resetConn(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails only for a connection that is closed already
	_ = c.Close()
}

// run forwards requests until the client closes its connection or the link ends.
func (l *link) run() {
	defer l.hangUp()
	buf := make([]byte, 32<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			server, due, ok := l.request(buf[:n])
			if !ok || !l.waitUntil(due) {
				return
			}
			if server != nil {
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// request returns the connection to forward a part of a request to, nil for none, and
// the time, and reports whether to go on.
func (l *link) request(b []byte) (server *net.TCPConn, due time.Time, ok bool) {
	p := l.proxy
	p.mu.Lock()
	p.received += int64(len(b))
	if l.ctx.Err() != nil {
		p.mu.Unlock()
		return nil, due, false
	}
	if p.mode.fault == blackhole || l.holed {
		l.holed = true
		p.mu.Unlock()
		return nil, due, true
	}
	if p.mode.loses(p.mode.requests) {
		p.mu.Unlock()
		return nil, due, true
	}
	due = p.mode.due(len(b), p.mode.requests, &l.sent)
	if name, found := command(b); found {
		l.handshake = ownCommands[name]
	}
	server = l.server
	target := p.target
	p.mu.Unlock()
	if server != nil {
		return server, due, true
	}

	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", target)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		l.reset()
		return nil, due, false
	}
	server = conn.(*net.TCPConn)
	if l.ctx.Err() != nil {
		resetConn(server)
		return nil, due, false
	}
	l.server = server
	pieces := make(chan piece, 64)
	p.wg.Go(func() { l.replies(server, pieces) })
	p.wg.Go(func() { l.deliver(pieces) })
	return server, due, true
}

// replies reads the server's replies and passes on the parts to forward.
func (l *link) replies(server io.Reader, pieces chan<- piece) {
	defer close(pieces)
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			part, last := l.reply(buf[:n])
			if len(part.data) > 0 {
				select {
				case pieces <- part:
				case <-l.ctx.Done():
					return
				}
			}
			if last {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// reply decides about a part of a reply: the bytes to forward, the time, and whether
// these are the last.
func (l *link) reply(b []byte) (part piece, last bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode.loses(p.mode.replies) {
		return piece{}, false
	}
	part.due = p.mode.due(len(b), p.mode.replies, &l.replied)
	switch p.mode.fault {
	case delay:
		part.due = time.Now().Add(p.mode.someDelay())
	case blackhole:
		l.holed = true
		return piece{}, false
	case cutAfter:
		if l.handshake {
			break
		}
		if l.turn != p.turn {
			l.turn, l.passed = p.turn, 0
		}
		b = b[:min(len(b), p.mode.n-l.passed)]
		l.passed += len(b)
		last = l.passed == p.mode.n
	case dropReply:
		if l.handshake {
			break
		}
		p.dropped++
		if p.mode.n--; p.mode.n == 0 {
			p.mode = mode{fault: pass}
		}
		l.reset()
		return piece{}, true
	}
	part.data = bytes.Clone(b)
	return part, last
}

// deliver sends replies to the client when they are due, and ends the link after
// the last.
func (l *link) deliver(pieces <-chan piece) {
	defer l.hangUp()
	for part := range pieces {
		if !l.waitUntil(part.due) {
			return
		}
		if !l.mayDeliver() {
			continue
		}
		if _, err := l.client.Write(part.data); err != nil {
			return
		}
	}
}

// waitUntil returns at that time, or false when the link has ended.
func (l *link) waitUntil(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// mayDeliver is false if the mode has become a blackhole since the reply was read.
func (l *link) mayDeliver() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.proxy.mode.fault == blackhole {
		l.holed = true
	}
	return !l.holed
}

// ownCommands are the commands that clients send by themselves.
var ownCommands = map[string]bool{
	"HELLO": true, "AUTH": true, "CLIENT": true, "SELECT": true, "READONLY": true, "COMMAND": true, "CLUSTER": true,
}

// command is the name of the command that begins at b, in capitals.
func command(b []byte) (string, bool) {
	// "*<args>\r\n$<size>\r\n<name>\r\n", and there may be more
	parts := bytes.SplitN(b, []byte("\r\n"), 4)
	if len(parts) < 4 || b[0] != '*' || string(parts[1]) != fmt.Sprintf("$%d", len(parts[2])) {
		return "", false
	}
	return strings.ToUpper(string(parts[2])), true
}
