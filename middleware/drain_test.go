package middleware_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// A denial reads the body up to its bounds. It lengthens no deadline, leaves none behind, and asks
// nobody for a body.
func TestDenialReadsTheBody(t *testing.T) {
	const (
		mega = 1 << 20 // more than net/http reads by itself
		most = 64 * mega
		none = -1 // no more than comes with the header
		idle = time.Minute
		size = "Content-Length: 1048576"
	)
	l := limiter(t, middleware.Config{Store: gcra.NewMemory(), Logger: unread},
		middleware.Policy{Name: "p", Key: keyFails, Limit: five, OnFailure: middleware.FailClosed})
	deny := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.Allow(w, r) })
	stops := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		deny(w, r)
	})

	for _, test := range []struct {
		name   string
		server *http.Server
		fields string
		sends  int64 // bytes after the header; then the client waits
		reads  int64 // how many of them the server takes at least
		took   time.Duration
		alive  bool // the connection is good for another request
	}{
		{"length", &http.Server{}, size, mega, mega, 0, true},
		{"closes", &http.Server{}, size + "\r\nConnection: close", mega, mega, 0, false},
		{"at the bound", &http.Server{}, "Content-Length: 67108864", most, most, 0, true},
		{"above", &http.Server{}, "Content-Length: 67108865", most + 1, none, 0, false},
		{"chunks, above", &http.Server{}, "Transfer-Encoding: chunked\r\n\r\n9000000", 2 * most, most, 0, false},
		{"slow", &http.Server{}, size, mega - 1, mega - 1, 5 * time.Second, false},
		{"slow, and to be answered", &http.Server{WriteTimeout: 4 * time.Second}, size, mega - 1, mega - 1, 2 * time.Second, false},
		{"slow, deadline of the server", &http.Server{ReadTimeout: time.Second}, size, mega - 1, mega - 1, time.Second, false},
		{"slow, deadline of the handler", &http.Server{Handler: stops}, size, mega - 1, mega - 1, time.Second, false},
		{"no deadline", &http.Server{Handler: http.TimeoutHandler(deny, idle, "")}, size, mega, none, 0, false},
		{"asks first", &http.Server{}, size + "\r\nExpect: 100-continue", 0, 0, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			if test.server.Handler == nil {
				test.server.Handler = deny
			}
			client := doubles.Dial(t, test.server)
			start, sent := time.Now(), make(chan int64, 1)
			head := "POST / HTTP/1.1\r\nHost: h\r\n" + test.fields + "\r\n\r\n"
			go func() {
				n, _ := io.Copy(client, io.MultiReader(strings.NewReader(head), io.LimitReader(zeros{}, test.sends)))
				sent <- n - int64(len(head))
			}()

			replies := bufio.NewReader(client)
			status := reply(replies)
			if took := time.Since(start); status != "503" || took != test.took {
				t.Errorf("%s: got %s after %v; want 503 after %v", test.name, status, took, test.took)
			}

			time.Sleep(idle)
			again := "EOF"
			if test.alive {
				again = "503"
				_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			}
			if got := reply(replies); got != again {
				t.Errorf("%s, another request: got %s; want %s", test.name, got, again)
			}
			if n := <-sent; n < test.reads || test.reads == none && n > mega/2 {
				t.Errorf("%s: got %d bytes read; want %d", test.name, n, test.reads)
			}
		})
	}

	// HTTP/2 ends a stream by itself: its body is no connection's.
	r, body := get("/"), strings.NewReader("unread")
	r.ProtoMajor, r.Body = 2, io.NopCloser(body)
	if l.Allow(stoppable{&discard{header: http.Header{}}}, r); body.Len() != len("unread") {
		t.Error("a body of HTTP/2 is read")
	}

	// With 256 bodies being read, the next one is not.
	synctest.Test(t, func(t *testing.T) {
		s := &http.Server{Handler: deny}
		start, last := time.Now(), net.Conn(nil)
		for range 257 {
			last = doubles.Dial(t, s)
			_, _ = io.WriteString(last, "POST / HTTP/1.0\r\nContent-Length: 9\r\n\r\n")
			synctest.Wait()
		}
		if got := reply(bufio.NewReader(last)); got != "503" || time.Since(start) != 0 {
			t.Errorf("257 at once: got %s after %v; want 503 after 0s", got, time.Since(start))
		}
		time.Sleep(5 * time.Second)
	})
}

// reply returns the status of a response, or why there is none.
func reply(from *bufio.Reader) string {
	res, err := http.ReadResponse(from, nil)
	if err != nil {
		return strings.TrimPrefix(err.Error(), "unexpected ")
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return strconv.Itoa(res.StatusCode)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

type stoppable struct{ *discard }

func (stoppable) SetReadDeadline(time.Time) error { return nil }
