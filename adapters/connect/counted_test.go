package ratelimit_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/connect"
	nethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Which calls of a client that writes its own requests are counted. However the
// procedure is spelled, no call gets to a handler past the policy of its route. A limiter of net/http around
// the server counts them all, and leaves the header fields to the interceptor.
func TestCounted(t *testing.T) {
	var counted, served, around int
	all := nethttp.New(nethttp.Config{Store: gcra.NewMemory(), Headers: middleware.HeadersNone, Observe: func(*http.Request, *nethttp.Decision) { around++ }},
		nethttp.Policy{Name: "all", Key: key("k"), Limit: gcra.PerHour(2000)})
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { counted += len(d.Results) }},
		ratelimit.Policy{Name: "routes", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{unaryCall, getCall}})
	s := serve(t, transports()[0], all(handler(func(context.Context, func() error) error {
		served++
		return connect.NewError(connect.CodeNotFound, nil)
	}, connect.WithInterceptors(limit))))
	const (
		json  = "application/json"
		query = "?encoding=json&message=%7B%7D&connect=v1"
	)
	for _, test := range []struct {
		name, method, path, contentType, body string
		header                                http.Header
		want                                  int
	}{
		{"a call that the handler fails", "POST", unaryCall, json, "{}", nil, 1},
		{"gRPC-Web", "POST", unaryCall, "application/grpc-web", "\x00\x00\x00\x00\x00", nil, 1},
		{"no message", "POST", unaryCall, json, "", nil, 0},
		{"half a message", "POST", unaryCall, json, "{", nil, 0},
		{"half a message of gRPC-Web", "POST", unaryCall, "application/grpc-web", "\x00\x00\x00\x00\x02\x00", nil, 0},
		{"an unknown encoding", "POST", unaryCall, "application/xml", "{}", nil, 0},
		{"an unknown compression", "POST", unaryCall, json, "{}", http.Header{"Content-Encoding": {"invented"}}, 0},
		{"a timeout that is no number", "POST", unaryCall, json, "{}", http.Header{"Connect-Timeout-Ms": {"x"}}, 0},
		{"GET", "GET", getCall + query, "", "", nil, 1},
		{"GET, in base64", "GET", getCall + "?encoding=json&message=e30&base64=1&connect=v1", "", "", nil, 1},
		{"GET, an escaped letter", "GET", strings.Replace(getCall, "G", "%47", 1) + query, "", "", nil, 1},
		{"GET, two slashes", "GET", "/" + getCall + query, "", "", nil, 0},
		{"GET, an escaped slash", "GET", strings.Replace(getCall, "/G", "%2FG", 1) + query, "", "", nil, 0},
		{"GET, another case", "GET", strings.ToLower(getCall) + query, "", "", nil, 0},
		{"GET, half a message", "GET", getCall + "?encoding=json&message=%7B&connect=v1", "", "", nil, 0},
		{"GET of a call with side effects", "GET", unaryCall + query, "", "", nil, 0},
		{"HEAD", "HEAD", getCall + query, "", "", nil, 0},
	} {
		counted, served, around = 0, 0, 0
		r, err := http.NewRequest(test.method, s.url+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		if test.header != nil {
			r.Header = test.header
		}
		if test.contentType != "" {
			r.Header.Set("Content-Type", test.contentType)
		}
		response, err := s.client.Transport.RoundTrip(r) // no redirects
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		fields := len(response.Header["Ratelimit-Limit"])
		if counted != test.want || served != test.want || around != 1 || fields != test.want {
			t.Errorf("%s: got %d calls counted, %d served, %d around and %d fields; want %d, and 1 around",
				test.name, counted, served, around, fields, test.want)
		}
	}
}
