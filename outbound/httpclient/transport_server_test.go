package httpclient_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
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
