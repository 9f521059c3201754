package httpclient_test

import (
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

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// serve runs a server and returns a client of it, and the number of connections to the server.
func serve(t *testing.T, h http.Handler, cfg httpclient.Config) (c *http.Client, url string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	server := httptest.NewUnstartedServer(h)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	cfg.Base = server.Client().Transport
	return &http.Client{Transport: transport(t, cfg)}, server.URL, connections
}

// With our middleware as the server, in every form of headers, the caller gets no 429, with and
// without policies for its limit.
func TestOurMiddleware(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]middleware.Headers{
		"draft 6": middleware.HeadersDraft6, "draft 11": middleware.HeadersDraft11, "X": middleware.HeadersXRateLimit,
		"all": middleware.HeadersDraft6 | middleware.HeadersDraft11 | middleware.HeadersXRateLimit, "none": middleware.HeadersNone,
	} {
		for _, knows := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, knows %v", name, knows), func(t *testing.T) {
				t.Parallel()
				var served, denied atomic.Int64
				limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Headers: headers,
					Observe: func(_ *http.Request, d *ratelimit.Decision) {
						if !d.Allowed {
							denied.Add(1)
						}
					}},
					ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(5).WithBurst(4)})

				handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
				cfg := httpclient.Config{MaxTries: 20}
				if knows {
					cfg.Store = gcra.NewMemory()
					cfg.Policies = []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerSecond(5).WithBurst(2)}}
				}

				c, url, _ := serve(t, handler, cfg)

				var wg sync.WaitGroup
				const callers, calls = 4, 3
				for range callers {
					wg.Go(func() {
						for range calls {
							resp, err := c.Get(url)
							if err != nil {
								t.Error(err)
								return
							}
							if resp.Body.Close(); resp.StatusCode != http.StatusOK {
								t.Errorf("got status %d; want 200", resp.StatusCode)
							}
						}
					})
				}

				wg.Wait()
				if served.Load() != callers*calls {
					t.Errorf("the server served %d; want %d", served.Load(), callers*calls)
				}
				if !knows && denied.Load() == 0 {
					t.Error("no request was denied; want some, or the test shows nothing")
				}
			})
		}
	}
}

// Transport and Adaptive may be Base of each other, and the caller gets no 429.
func TestWithAdaptive(t *testing.T) {
	t.Parallel()
	for name, stack := range map[string]func(base http.RoundTripper) http.RoundTripper{
		"Transport on Adaptive": func(base http.RoundTripper) http.RoundTripper {
			return transport(t, httpclient.Config{Base: &httpclient.Adaptive{Base: base}, MaxTries: 20})
		},
		"Adaptive on Transport": func(base http.RoundTripper) http.RoundTripper {
			return &httpclient.Adaptive{Base: transport(t, httpclient.Config{Base: base, MaxTries: 20})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var served atomic.Int64
			limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
				ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(20)})
			server := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })))
			t.Cleanup(server.Close)
			c := &http.Client{Transport: stack(server.Client().Transport)}

			var wg sync.WaitGroup
			const callers, calls = 4, 15
			for range callers {
				wg.Go(func() {
					for range calls {
						resp, err := c.Get(server.URL)
						if err != nil {
							t.Error(err)
							return
						}
						if resp.Body.Close(); resp.StatusCode != http.StatusOK {
							t.Errorf("got status %d; want 200", resp.StatusCode)
						}
					}
				})
			}

			wg.Wait()
			if served.Load() != callers*calls {
				t.Errorf("the server served %d; want %d", served.Load(), callers*calls)
			}
		})
	}
}

// After a 429 without Retry-After the client backs off.
func TestPlainServer(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	c, url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n.Add(1) == 1 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.Write(body)
	}), httpclient.Config{})

	r := request(t, "PUT", url, strings.NewReader("order"))
	begin := time.Now()
	resp, err := c.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK || text(t, resp) != "order" || n.Load() != 2 {
		t.Errorf("got %v, %v after %d tries; want the order back after 2", resp, err, n.Load())
	}
	between(t, "time", time.Since(begin), 250*time.Millisecond, 10*time.Second)
}

// The body of a denial is read to its end, so that the next try needs no new
// connection; a large body is not.
func TestConnections(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		size  int
		want  int64
		fixed bool // Content-Length rather than chunks
	}{
		{"no body", 0, 1, false},
		{"small", 1 << 10, 1, true},
		{"small, in chunks", 32 << 10, 1, false},
		{"large", 32 << 20, 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			c, url, connections := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if n.Add(1) > 1 {
					return
				}
				if tt.fixed {
					w.Header().Set("Content-Length", fmt.Sprint(tt.size))
				}

				w.WriteHeader(http.StatusTooManyRequests)
				for range tt.size >> 10 {
					if _, err := w.Write(make([]byte, 1<<10)); err != nil {
						return // the client closed the connection, as it should for a large body
					}
				}
			}), httpclient.Config{})

			resp, err := c.Get(url)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("got %v, %v; want 200", resp, err)
			}
			resp.Body.Close()
			if got := connections.Load(); got != tt.want {
				t.Errorf("got %d connections; want %d", got, tt.want)
			}
		})
	}
}

// A denial with an endless body does not delay the next try.
func TestEndlessDenial(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if http2 != (r.ProtoMajor == 2) {
					t.Errorf("got %s; want HTTP/2 %v", r.Proto, http2)
				}
				if n.Add(1) > 1 {
					return
				}
				w.WriteHeader(http.StatusTooManyRequests)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}))

			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			c := &http.Client{Transport: transport(t, httpclient.Config{Base: server.Client().Transport})}
			begin := time.Now()
			resp, err := c.Get(server.URL)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("got %v, %v; want 200", resp, err)
			}

			resp.Body.Close()
			between(t, "time", time.Since(begin), 500*time.Millisecond, 10*time.Second)
		})
	}
}

// The client's Timeout bounds the wait.
func TestClientTimeout(t *testing.T) {
	t.Parallel()
	c, url, _ := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), httpclient.Config{
		Store: gcra.NewMemory(), Policies: []httpclient.Policy{{Key: httpclient.ByHost, Limit: gcra.PerHour(1)}},
	})
	c.Timeout = 20 * time.Second
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	begin := time.Now()
	if _, err := c.Get(url); err == nil || !strings.Contains(err.Error(), turns.ErrWouldWait.Error()) {
		t.Errorf("got %v; want ErrWouldWait", err)
	}
	between(t, "time", time.Since(begin), 0, 10*time.Second)
}
