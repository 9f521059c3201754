package faults

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// ledger is a burst of n that takes a year to refill, so that the units left show
// what was charged.
func ledger(n int64) gcra.Limit {
	return gcra.Limit{Count: 1, Per: (365 * 24 * time.Hour / time.Duration(n)).Truncate(time.Microsecond), Burst: n}
}

// charged is what was taken from a ledger.
func charged(t *testing.T, server *redistest.Server, subject string, l gcra.Limit) int64 {
	t.Helper()
	store := patientStore(t, server, config{})
	c := mustTake(t, store, gcra.Charge{Subject: subject, Policy: "all", Limit: l, Peek: true})
	return l.Burst - c[0].Result.Remaining
}

// hangUp sends a request and resets the connection after a while.
func (s *site) hangUp(t *testing.T, request string, after time.Duration) {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = io.WriteString(conn, request)
	time.Sleep(after)
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// settled waits until no more decisions are made, and returns their number.
func (s *site) settled() int64 {
	for {
		before := s.decisions.Load()
		time.Sleep(100 * time.Millisecond)
		if n := s.decisions.Load(); n == before {
			return n
		}
	}
}

const plainRequest = "GET /ok HTTP/1.1\r\nHost: h\r\n\r\n"

func TestFault60HangingUpDoesNotAvoidTheCharge(t *testing.T) {
	o := apart(t, "a reset right after the request")
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	limit := ledger(8000)
	for _, f := range sitetest.Frameworks {
		store := rigAt(t, "redis://"+proxy.Addr, config{Prefix: "rl:", Timeout: ample})
		s := openSite(t, o, sitetest.Config{Build: f.Build, Config: middleware.Config{Store: store.Store}, Policies: []middleware.Policy{
			{Name: "all", Key: func(*http.Request) (string, error) { return f.Name, nil }, Limit: limit}}})
		s.Do(t, "GET /ok")
		proxy.Delay(3 * time.Millisecond)

		n := amount(200, 2000)
		redistest.Together(20, func(i int) {
			for range n / 20 {
				s.hangUp(t, plainRequest, time.Duration(i%3)*2*time.Millisecond)
			}
		})

		// Close returns when all requests are answered. A reset may arrive before its request is
		// read, which is then not served.
		s.Close()
		decisions := s.decisions.Load()
		proxy.Pass()
		expect(t, f.Name+": charged", charged(t, server, f.Name, limit), decisions)

		if handled := s.Handled.Load(); decisions < int64(n)/3 || handled > decisions {
			t.Errorf("%s: %d decisions and %d served of %d requests; want most decided, and none served without", f.Name, decisions, handled, n)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
