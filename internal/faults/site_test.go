package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echo"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// framework builds a server of a limiter and routes in the syntax of a ServeMux.
type framework struct {
	name  string
	build func(*middleware.Limiter, map[string]http.HandlerFunc) http.Handler
}

// frameworks are for the faults in which the framework matters.
var frameworks = []framework{{"net/http", buildNetHTTP}, {"chi", buildChi}, {"gin", buildGin}, {"echo", buildEcho}}

func buildNetHTTP(l *middleware.Limiter, routes map[string]http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range routes {
		mux.HandleFunc(pattern, h)
	}
	return vianethttp.From(l)(mux)
}

func buildChi(l *middleware.Limiter, routes map[string]http.HandlerFunc) http.Handler {
	router := chi.NewRouter()
	router.Use(viachi.From(l))
	for pattern, h := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		router.Method(method, path, h)
	}
	return router
}

func buildGin(l *middleware.Limiter, routes map[string]http.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(viagin.From(l))
	for pattern, h := range routes {
		method, path := template(pattern)
		router.Handle(method, path, gin.WrapF(h))
	}
	return router
}

func buildEcho(l *middleware.Limiter, routes map[string]http.HandlerFunc) http.Handler {
	e := echo.New()
	e.Use(viaecho.From(l))
	for pattern, h := range routes {
		method, path := template(pattern)
		e.Add(method, path, echo.WrapHandler(h))
	}
	return e
}

// template turns "GET /users/{id}" into GET and /users/:id.
func template(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("/{", "/:", "}", "").Replace(path)
}

// eachFramework runs a test once for every framework.
func eachFramework(t *testing.T, test func(*testing.T, framework)) {
	for _, f := range frameworks {
		t.Run(strings.ReplaceAll(f.name, "/", ""), func(t *testing.T) { test(t, f) })
	}
}

// setup is what a site is made of. The zero values are net/http, a Memory, and
// a handler that answers 200.
type setup struct {
	framework
	middleware.Config
	policies []middleware.Policy
	handler  http.HandlerFunc
	wrap     func(http.Handler) http.Handler // put around all of it
	tls      bool                            // with HTTP/2
}

// site is a limited server with a client, and what happened in it.
type site struct {
	*httptest.Server
	client    *http.Transport
	handled   atomic.Int64 // requests that reached their handler
	decisions atomic.Int64
	failed    atomic.Int64 // decisions with an Err

	mu   sync.Mutex
	took latencies // of all decisions
	last middleware.Decision
}

func openSite(t *testing.T, o *outcome, cfg setup) *site {
	t.Helper()
	s := &site{client: &http.Transport{MaxIdleConnsPerHost: 64}}
	if cfg.build == nil {
		cfg.framework = frameworks[0]
	}
	if cfg.Store == nil {
		cfg.Store = gcra.NewMemory()
	}
	observe := cfg.Observe
	cfg.Observe = func(r *http.Request, d middleware.Decision) {
		o.decided(d.Took)
		s.decisions.Add(1)
		if d.Err != nil {
			s.failed.Add(1)
		}
		s.mu.Lock()
		s.took = append(s.took, d.Took)
		s.last = d
		s.mu.Unlock()
		if observe != nil {
			observe(r, d)
		}
	}
	routes := make(map[string]http.HandlerFunc)
	for _, pattern := range []string{"GET /ok", "HEAD /ok", "POST /ok", "PUT /ok", "OPTIONS /ok", "POST /login", "GET /users/{id}"} {
		routes[pattern] = func(w http.ResponseWriter, r *http.Request) {
			s.handled.Add(1)
			if cfg.handler != nil {
				cfg.handler(w, r)
			}
		}
	}
	handler := cfg.build(middleware.Must(middleware.New(cfg.Config, cfg.policies...)), routes)
	if cfg.wrap != nil {
		handler = cfg.wrap(handler)
	}
	s.Server = httptest.NewUnstartedServer(handler)
	if cfg.tls {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		s.Close()
	})
	return s
}

// underLoad is a site on a store for [site.traffic], which does not reach its
// limit.
func underLoad(t *testing.T, o *outcome, r *rig) *site {
	t.Helper()
	return openSite(t, o, setup{Config: middleware.Config{Store: r.Store}, policies: []middleware.Policy{
		{Name: "all", Key: byClient, Limit: gcra.PerSecond(1000)}}})
}

func (s *site) lastDecision() middleware.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// do sends "GET /ok" or the like, with header fields "Name: value". It follows
// no redirects.
func (s *site) do(t *testing.T, request string, header ...string) *http.Response {
	t.Helper()
	return s.doFrom(t, s.client, request, header...)
}

func (s *site) doFrom(t *testing.T, client http.RoundTripper, request string, header ...string) *http.Response {
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
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Errorf("%s: %v", request, err)
		return &http.Response{Header: http.Header{}}
	}
	return drained(t, res)
}

// drained is the response, its body read.
func drained(t *testing.T, res *http.Response) *http.Response {
	t.Helper()
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	return res
}

// statuses sends a request several times.
func (s *site) statuses(t *testing.T, request string, n int, header ...string) (codes []int) {
	t.Helper()
	for range n {
		codes = append(codes, s.do(t, request, header...).StatusCode)
	}
	return codes
}

// codes counts answers by their status.
type codes map[int]int

// traffic sends requests of several users at a pace for a while.
func (s *site) traffic(t *testing.T, perSecond int, d time.Duration) codes {
	t.Helper()
	got := make(codes)
	var mu sync.Mutex
	var wg sync.WaitGroup
	gap := time.Second / time.Duration(perSecond)
	for i, start := 0, time.Now(); time.Since(start) < d; i++ {
		time.Sleep(time.Until(start.Add(time.Duration(i) * gap)))
		wg.Go(func() {
			resp := s.do(t, "GET /ok", fmt.Sprint("X-Client: user", i%10))
			mu.Lock()
			defer mu.Unlock()
			got[resp.StatusCode]++
		})
	}
	wg.Wait()
	return got
}

// only fails when an answer had another status than these.
func (c codes) only(t *testing.T, when string, allowed ...int) {
	t.Helper()
	for code, n := range c {
		if !slices.Contains(allowed, code) {
			t.Errorf("%s: %d answers with status %d; want only %v", when, n, code, allowed)
		}
	}
}

// raw sends bytes that no proper client would send, and returns nil if the server
// closes the connection.
func (s *site) raw(t *testing.T, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go io.WriteString(conn, request) // a server may answer before it has read all
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil
	}
	return drained(t, res)
}

// from is a client whose connections come from another address of this machine.
func from(t *testing.T, addr string) *http.Transport {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	client := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// patientStore is a store that does not fail on a busy machine.
func patientStore(t *testing.T, s *redistest.Server) *redisstore.Store {
	t.Helper()
	r, err := redisstore.Open(s.URL() + "?read_timeout=20s&write_timeout=20s&dial_timeout=20s&pool_timeout=20s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.Timeout = ample
	return r
}

// byClient counts by a header that any client can write, as no real server should.
func byClient(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }

// everybody is one bucket for all clients.
func everybody(*http.Request) (string, error) { return "everybody", nil }

// expect compares what is printed of both.
func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s; want %s", what, g, w)
	}
}

// dump is the state of a key in Redis: its value and when it expires.
func dump(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	ctx := t.Context()
	value, err := s.Client().Dump(ctx, key).Result()
	if err != nil {
		t.Fatalf("DUMP %s: %v", key, err)
	}
	expires, err := redistest.ExpireTime(ctx, s.Client(), key)
	if err != nil {
		t.Fatalf("the expiry of %s: %v", key, err)
	}
	return fmt.Sprintf("%x until %v", value, expires)
}

// lead is how far the TAT stored under the key is ahead of Redis's clock, and how
// long the key has to live, at one moment.
func lead(t *testing.T, s *redistest.Server, key string) (ahead, ttl time.Duration) {
	t.Helper()
	v, err := s.Client().Eval(t.Context(), `local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 10000000 + time[2] * 10
return { (tonumber(redis.call('GET', KEYS[1]) or now) or now) - now, redis.call('PTTL', KEYS[1]) }`, []string{key}).Int64Slice()
	if err != nil {
		t.Fatalf("the TAT of %s: %v", key, err)
	}
	return time.Duration(v[0]) * 100, time.Duration(v[1]) * time.Millisecond
}
