// Package doubles has what stands in for a clock, a store and a network in tests.
package doubles

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Clock stands still until Add moves it. The zero value is ready, and goroutines may share it.
type Clock struct{ passed atomic.Int64 }

// Now returns the time of the clock, at first the start of a month.
func (c *Clock) Now() time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.passed.Load()))
}

// Add moves the clock.
func (c *Clock) Add(d time.Duration) { c.passed.Add(int64(d)) }

// ErrDown is the error of a store that is down.
var ErrDown = errors.New("dial tcp 10.0.0.7:6379: connection refused")

// Down is a store that is down, and has no state of its own.
type Down struct{}

// Take fails.
func (Down) Take(context.Context, []gcra.Charge) (bool, error) { return false, ErrDown }

// Refund fails.
func (Down) Refund(context.Context, []gcra.Charge) error { return ErrDown }

// Store is a [gcra.Memory] by a Clock of its own, which counts its calls and can fail. Goroutines may share it. What
// tests set is set between calls.
type Store struct {
	gcra.Store
	Clock

	Err    error // of all calls, until it is nil again
	Fail   int   // so many of the next calls fail with ErrDown
	Panics bool  // calls fail by a panic

	Takes, Refunds int
	Canceled       bool // a call came with a context that is done

	mu sync.Mutex
}

// NewStore returns an empty Store.
func NewStore() *Store {
	s := new(Store)
	s.Store = gcra.NewMemory(gcra.MemoryConfig{Now: s.Now})
	return s
}

// SetDown has all calls fail with ErrDown, or none.
func (s *Store) SetDown(down bool) {
	if s.Err = nil; down {
		s.Err = ErrDown
	}
}

// Take takes from the Memory.
func (s *Store) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	if err := s.call(ctx, &s.Takes); err != nil {
		return false, err
	}
	return s.Store.Take(ctx, charges)
}

// Refund refunds to the Memory.
func (s *Store) Refund(ctx context.Context, charges []gcra.Charge) error {
	if err := s.call(ctx, &s.Refunds); err != nil {
		return err
	}
	return s.Store.Refund(ctx, charges)
}

func (s *Store) call(ctx context.Context, count *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	s.Canceled = s.Canceled || ctx.Err() != nil

	err := s.Err
	if err == nil && s.Fail > 0 {
		s.Fail--
		err = ErrDown
	}
	if err != nil && s.Panics {
		panic(err)
	}
	return err
}

// Dial returns a connection to the server, in memory.
func Dial(t testing.TB, s *http.Server) net.Conn {
	client, server := net.Pipe()
	listener := &oneConn{conn: server, closed: make(chan struct{})}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { client.Close(); s.Close() })
	return client
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return new(net.TCPAddr) }
