package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// frameworks are for the rows in which the framework has a part.
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

// eachFramework runs a part of a row once for every framework.
func eachFramework(t *testing.T, test func(*testing.T, framework)) {
	for _, f := range frameworks {
		t.Run(strings.ReplaceAll(f.name, "/", ""), func(t *testing.T) { test(t, f) })
	}
}

// setup is what a website is made of. The zero values are net/http, a Memory,
// and a handler that answers 200.
type setup struct {
	framework
	middleware.Config
	policies []middleware.Policy
	handler  http.HandlerFunc
	wrap     func(http.Handler) http.Handler // put around all of it
	tls      bool                            // with HTTP/2
}

// website is a running server, and what happened in it.
type website struct {
	*httptest.Server
	handled   atomic.Int64 // requests that reached their handler
	decisions atomic.Int64
	failed    atomic.Int64 // decisions with an Err

	mu   sync.Mutex
	last middleware.Decision
}

func openSite(t *testing.T, o *outcome, cfg setup) *website {
	t.Helper()
	s := new(website)
	if cfg.build == nil {
		cfg.framework = frameworks[0]
	}
	if cfg.Store == nil {
		cfg.Store = gcra.NewMemory()
	}
	cfg.Store = timed(cfg.Store, o)
	observe := cfg.Observe
	cfg.Observe = func(r *http.Request, d middleware.Decision) {
		s.decisions.Add(1)
		if d.Err != nil {
			s.failed.Add(1)
		}
		s.mu.Lock()
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
			w.Header().Set("X-Handled-By", pattern)
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
	t.Cleanup(s.Close)
	return s
}

func (s *website) lastDecision() middleware.Decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// timed is a store whose decisions the outcome counts and times.
func timed(store gcra.Store, o *outcome) gcra.Store {
	if r, ok := store.(*redisstore.Store); ok {
		return timedRedis{r, o}
	}
	return timedStore{store, o}
}

type timedStore struct {
	gcra.Store
	o *outcome
}

func (s timedStore) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	begin := time.Now()
	defer func() { s.o.decided(time.Since(begin)) }()
	return s.Store.Take(ctx, charges)
}

// timedRedis keeps the Local of the Redis in sight.
type timedRedis struct {
	*redisstore.Store
	o *outcome
}

func (s timedRedis) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	return timedStore{s.Store, s.o}.Take(ctx, charges)
}

// answer is a response, read to its end.
type answer struct {
	*http.Response
	body string
}

// do sends "GET /ok" or the like, with header fields "Name: value". It follows
// no redirects.
func (s *website) do(t *testing.T, request string, header ...string) answer {
	t.Helper()
	return s.doFrom(t, http.DefaultTransport, request, header...)
}

func (s *website) doFrom(t *testing.T, client http.RoundTripper, request string, header ...string) answer {
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
		t.Fatalf("%s: %v", request, err)
	}
	return readAnswer(t, res)
}

func readAnswer(t *testing.T, res *http.Response) answer {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, string(body)}
}

// statuses sends a request several times.
func (s *website) statuses(t *testing.T, request string, n int, header ...string) (codes []int) {
	t.Helper()
	for range n {
		codes = append(codes, s.do(t, request, header...).StatusCode)
	}
	return codes
}

// raw sends bytes that a well-behaved client would not, and returns nil if the
// server's answer is to hang up.
func (s *website) raw(t *testing.T, request string) *answer {
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
	a := readAnswer(t, res)
	return &a
}

// from is a client whose connections come from another address of this machine.
func from(t *testing.T, addr string) *http.Transport {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	client := &http.Transport{DialContext: d.DialContext}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// patience is the Timeout of stores whose speed is not the story.
const patience = 20 * time.Second

// patientStore is a store that no busy machine makes fail, with keys of its own.
func patientStore(t *testing.T, s *redistest.Server) *redisstore.Store {
	t.Helper()
	r, err := redisstore.Open(s.URL() + "?read_timeout=20s&write_timeout=20s&dial_timeout=20s&pool_timeout=20s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.Timeout = patience
	return r
}

// byClient counts the client by a header that it writes itself, as no real
// server should.
func byClient(r *http.Request) (string, error) { return r.Header.Get("X-Client"), nil }

// everybody is one bucket for all.
func everybody(*http.Request) (string, error) { return "everybody", nil }

// expect compares what is printed of both.
func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s; want %s", what, g, w)
	}
}

// sized is the first of two sizes in the short form, the second in the long one.
func sized(short, full int) int {
	if long {
		return full
	}
	return short
}

// dump is all that Redis knows of a key: its value as it is stored, and when it
// expires.
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

// lead is how far the TAT stored under the key stands ahead of Redis's clock,
// and how long the key has to live, at one moment.
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
