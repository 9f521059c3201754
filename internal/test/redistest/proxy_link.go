package redistest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// link is a client's connection and its connection to the server.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // done when the link has ended
	cancel context.CancelFunc

	// These are guarded by proxy.mu.
	server  *net.TCPConn // nil until the first request that is forwarded
	holed   bool         // bytes have been lost
	own     bool         // the last request was one of ownCommands
	turn    int          // the mode's, when passed was last zero
	passed  int          // bytes of reply towards cutAfter
	sent    time.Time    // when bandwidth is free for the next request
	replied time.Time    // when it is free for the next reply
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
		l.own = ownCommands[name]
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
		if l.own {
			break
		}
		if l.turn != p.turn {
			l.turn, l.passed = p.turn, 0
		}
		b = b[:min(len(b), p.mode.n-l.passed)]
		l.passed += len(b)
		last = l.passed == p.mode.n

	case dropReply:
		if l.own {
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
	"HELLO": true, "AUTH": true, "CLIENT": true, "SELECT": true, "READONLY": true, "COMMAND": true, "CLUSTER": true, "PING": true,
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
