package gcra

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// dialer makes the connections of a client that [Open] has made. go-redis prints
// a line for each dial that fails, several a call, to a logger that all clients
// of a process share; so a dial that fails returns a connection on which
// everything fails, for the same reason.
type dialer struct {
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	failed sync.Map // address: the error of the last dial, if it failed
}

func (d *dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, addr)
	if err == nil {
		d.failed.Delete(addr)
		return conn, nil
	}
	if !errors.Is(err, context.Canceled) {
		d.failed.Store(addr, err)
	}
	return &failedConn{err: err}, nil
}

// last is the error of the last dial of a server, if it failed. A caller may
// have stopped waiting before.
func (d *dialer) last(server string) error {
	if d == nil {
		return nil
	}
	err, _ := d.failed.Load(server)
	e, _ := err.(error)
	return e
}

// failedConn fails with the error of its dial. go-redis' pool drops it instead
// of handing it out a second time: the zero TCPConn has no socket to check.
type failedConn struct {
	net.TCPConn
	err error
}

func (c *failedConn) Read([]byte) (int, error) { return 0, c.err }

func (c *failedConn) Write([]byte) (int, error) { return 0, c.err }

// Close returns nil: the zero TCPConn would return EINVAL, which Close of a
// client hands on.
func (c *failedConn) Close() error { return nil }

func (c *failedConn) SetDeadline(time.Time) error { return c.err }

func (c *failedConn) SetReadDeadline(time.Time) error { return c.err }

func (c *failedConn) SetWriteDeadline(time.Time) error { return c.err }
