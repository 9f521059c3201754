package faults

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
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

// resetter is an HTTP/2 client that resets each stream as soon as it is open.
type resetter struct {
	conn   net.Conn
	header []byte
	stream uint32
	gone   chan struct{} // closed when the server has ended the connection
}

func dialResetter(t *testing.T, s *site) *resetter {
	t.Helper()
	addr := s.Listener.Addr().String()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}

	r := &resetter{conn: conn, stream: 1, gone: make(chan struct{})}
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", addr}, {":path", "/ok"}} {
		r.header = append(r.header, 0, byte(len(f[0]))) // a literal without indexing (RFC 7541, section 6.2.2)
		r.header = append(r.header, f[0]...)
		r.header = append(r.header, byte(len(f[1])))
		r.header = append(r.header, f[1]...)
	}

	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	const settings = 4
	if err := r.write(settings, 0, 0, nil); err != nil {
		t.Fatal(err)
	}

	go func() {
		defer close(r.gone)
		_, _ = io.Copy(io.Discard, conn) // settings are not acknowledged, which the server tolerates for a while
	}()

	return r
}

// write writes a frame (RFC 9113, section 4.1).
func (r *resetter) write(kind, flags byte, stream uint32, payload []byte) error {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	frame = binary.BigEndian.AppendUint32(append(frame, flags), stream)
	_, err := r.conn.Write(append(frame, payload...))
	return err
}

// rush opens and resets n streams, and returns how many it could.
func (r *resetter) rush(n int) (sent int) {
	for range n {
		const headers, endOfStreamAndHeaders, reset, cancel = 1, 1 | 4, 3, 8
		if err := r.write(headers, endOfStreamAndHeaders, r.stream, r.header); err != nil {
			return sent
		}
		if err := r.write(reset, 0, r.stream, []byte{0, 0, 0, cancel}); err != nil {
			return sent
		}
		r.stream += 2
		sent++
	}
	return sent
}

func (r *resetter) close() {
	_ = r.conn.Close()
	<-r.gone
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestFault61EachStreamOfARapidResetIsCharged(t *testing.T) {
	o := fault(t, "HTTP/2 streams reset at once")
	server := redistest.Start(t)
	limit := ledger(40_000)
	s := openSite(t, o, sitetest.Config{TLS: true, Config: middleware.Config{Store: patientStore(t, server, config{})}, Policies: []middleware.Policy{{Name: "all", Key: sitetest.Everybody, Limit: limit}}})
	goroutines, before := held(t), heap()

	// At a pace that the server keeps up with, each request is charged.
	paced, sent := dialResetter(t, s), 0
	for range amount(10, 100) {
		sent += paced.rush(100)
		redistest.Eventually(t, ample, fmt.Sprint(sent, " decisions"), func() bool { return s.decisions.Load() >= int64(sent) })
	}

	paced.close()
	expect(t, "decisions at a pace", s.decisions.Load(), int64(sent))
	expect(t, "charged at a pace", charged(t, server, "everybody", limit), int64(sent))

	// Faster, the server closes the connection. It charges the requests it has
	// started, and no others.
	for rest := amount(2000, 20_000); rest > 0; {
		r := dialResetter(t, s)
		n := r.rush(rest)
		rest -= max(n, 1)
		sent += n
		r.close()
	}

	decisions := s.settled()
	expect(t, "charged in a rush", charged(t, server, "everybody", limit), decisions)
	o.atMost(t, s.Handled.Load(), decisions, "served without a decision")
	expect(t, "decisions with an error", s.failed.Load(), 0)
	goroutines.released(t, 40) // idle connections to Redis stay

	if after := heap(); after > before+32<<20 {
		t.Errorf("the heap has grown from %d to %d bytes with %d streams; want it bounded", before, after, sent)
	}
}
