// Package sitetest runs limited servers in every framework, for tests over real
// HTTP.
package sitetest

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Config is what a [Site] is made of. The zero values are net/http, a Memory, a loose
// inner limit and a handler that answers 200.
type Config struct {
	middleware.Config
	Build    func(App) http.Handler // of one of [Frameworks]
	Policies []middleware.Policy
	Inner    []middleware.Policy
	Handler  http.HandlerFunc
	TLS      bool // with HTTP/2
}

// Site is a running server, a client of it, and a record of what happened.
type Site struct {
	*httptest.Server
	Client          *http.Transport
	Handled, Behind atomic.Int64 // requests that reached a handler, and the middleware behind the limiter

	mu   sync.Mutex
	last *middleware.Decision
}

// Everybody is a key function with one bucket for all clients.
func Everybody(*http.Request) (string, error) { return "everybody", nil }

// Start runs a server with a handful of routes. Each handler sets X-Handled-By to
// its route and X-Pattern to the request's.
func Start(t testing.TB, cfg Config) *Site {
	t.Helper()
	s := &Site{Client: &http.Transport{MaxIdleConnsPerHost: 64}, last: new(middleware.Decision)}
	if cfg.Build == nil {
		cfg.Build = BuildMux
	}
	if cfg.Store == nil {
		cfg.Store = gcra.NewMemory()
	}

	observe := cfg.Observe
	cfg.Observe = func(r *http.Request, d *middleware.Decision) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = d
		if observe != nil {
			observe(r, d)
		}
	}
	if cfg.Inner == nil {
		cfg.Inner = []middleware.Policy{{Name: "inner", Key: Everybody, Limit: gcra.PerSecond(1000)}}
	}

	a := App{
		Outer:  middleware.Must(middleware.New(cfg.Config, cfg.Policies...)),
		Inner:  middleware.Must(middleware.New(middleware.Config{Store: cfg.Store, Headers: cfg.Headers, Logger: cfg.Logger}, cfg.Inner...)),
		Behind: func() { s.Behind.Add(1) },
		Routes: map[string]http.HandlerFunc{},
	}

	for _, pattern := range []string{"GET /ok", "HEAD /ok", "POST /ok", "PUT /ok", "OPTIONS /ok",
		"POST /login", "GET /users/{id}", "GET /files/{path...}", "GET /inner/x"} {
		a.Routes[pattern] = func(w http.ResponseWriter, r *http.Request) {
			s.Handled.Add(1)
			w.Header().Set("X-Handled-By", pattern)
			w.Header().Set("X-Pattern", r.Pattern)
			if cfg.Handler != nil {
				cfg.Handler(w, r)
			}
		}
	}

	s.Server = httptest.NewUnstartedServer(cfg.Build(a))
	if s.EnableHTTP2 = cfg.TLS; cfg.TLS {
		s.StartTLS()
	} else {
		s.Server.Start()
	}
	t.Cleanup(func() {
		s.Client.CloseIdleConnections()
		s.Close()
	})

	return s
}

// Last is the last decision of the outer limiter, the zero value if there was none
// since [Site.Forget].
func (s *Site) Last() *middleware.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Forget forgets the last decision.
func (s *Site) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = new(middleware.Decision)
}

// Answer is a response with its body, read to its end.
type Answer struct {
	*http.Response
	Text string
}

// Do sends "GET /ok" or the like, with header fields "Name: value". It follows no
// redirects.
func (s *Site) Do(t testing.TB, request string, header ...string) Answer {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}

	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}

	res, err := s.Client.RoundTrip(r)
	if err != nil {
		t.Errorf("%s: %v", request, err)
		return Answer{Response: &http.Response{Header: http.Header{}}}
	}

	return Read(t, res)
}

// Read reads a response.
func Read(t testing.TB, res *http.Response) Answer {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return Answer{res, string(body)}
}

// Raw sends bytes that a well-behaved client would not send, on a connection in memory: thousands of
// sockets cost seconds. It returns nil if the server closes the connection.
func (s *Site) Raw(t testing.TB, request string) *Answer {
	t.Helper()
	conn, server := net.Pipe()
	defer conn.Close()
	_ = s.Config.Serve(&listener{local{server}}) // returns at the second Accept, and serves on
	go io.WriteString(conn, request)             // a server may answer before it has read all
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil
	}
	a := Read(t, res)
	return &a
}

// A local connection has the address of a client on this machine.
type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A listener accepts one connection.
type listener struct{ conn net.Conn }

func (l *listener) Accept() (conn net.Conn, err error) {
	if conn, l.conn = l.conn, nil; conn == nil {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (*listener) Close() error   { return nil }
func (*listener) Addr() net.Addr { return new(net.TCPAddr) }

// Statuses sends a request several times.
func (s *Site) Statuses(t testing.TB, request string, n int, header ...string) (codes []int) {
	t.Helper()
	for range n {
		codes = append(codes, s.Do(t, request, header...).StatusCode)
	}
	return codes
}
