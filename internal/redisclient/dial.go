package redisclient

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dialer makes the connections of a client that is opened by a URL. go-redis prints
// a line for each dial that fails, several a call, to a logger that all clients
// of a process share; so a dial that fails returns a connection on which
// everything fails, for the same reason. A client supplied by the user has none: nil.
type Dialer struct {
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	failed sync.Map // address: failedDial, if the last dial failed
}

// newDialer dials by options that may change until the first dial.
func newDialer(o *redis.UniversalOptions) *Dialer {
	return &Dialer{dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})(ctx, network, addr)
	}}
}

type failedDial struct {
	err error
	at  time.Time
}

// redialAfter is how long an address is not dialled after a dial that failed.
// go-redis has a pause of its own, but sees no dial fail.
const redialAfter = 100 * time.Millisecond

// Dial is a Dialer of go-redis.
func (d *Dialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if f := d.failure(addr); f.err != nil && time.Since(f.at) < redialAfter {
		return &failedConn{err: f.err}, nil
	}
	conn, err := d.dial(ctx, network, addr)
	if err == nil {
		d.failed.Delete(addr)
		return conn, nil
	}
	if !errors.Is(err, context.Canceled) {
		d.failed.Store(addr, failedDial{err, time.Now()})
	}
	return &failedConn{err: err}, nil
}

// Forget ends the pauses after dials that failed.
func (d *Dialer) Forget() {
	if d != nil {
		d.failed.Clear()
	}
}

// Failure is why the last dial of an address failed, or nil.
func (d *Dialer) Failure(addr string) error {
	if d == nil {
		return nil
	}
	return d.failure(addr).err
}

// failure is how the last dial of an address failed; its err is nil if it did not.
func (d *Dialer) failure(addr string) failedDial {
	f, _ := d.failed.Load(addr)
	failed, _ := f.(failedDial)
	return failed
}

// failedConn fails with the error of its dial. On Unix go-redis' pool drops it instead
// of handing it out a second time: the zero TCPConn has no socket to check.
type failedConn struct {
	net.TCPConn
	err error
}

func (c *failedConn) Read([]byte) (int, error) { return 0, c.err }

func (c *failedConn) Write([]byte) (int, error) { return 0, c.err }

// Close returns nil: the zero TCPConn would return EINVAL, and then the client's
// Close would too.
func (c *failedConn) Close() error { return nil }

func (c *failedConn) SetDeadline(time.Time) error { return c.err }

func (c *failedConn) SetReadDeadline(time.Time) error { return c.err }

func (c *failedConn) SetWriteDeadline(time.Time) error { return c.err }
