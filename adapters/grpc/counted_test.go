package ratelimit_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
)

// Which calls of a client that writes its own frames are counted, with the server of
// grpc-go and with its handler for net/http. However the method is spelled, no call gets
// to a handler past the policy of its route.
func TestCounted(t *testing.T) {
	const empty = "\x00\x00\x00\x00\x00" // an empty message
	var counted, served int
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *ratelimit.Decision) { counted += len(d.Results) }},
		ratelimit.Policy{Name: "routes", Key: key("k"), Limit: gcra.PerHour(1000), Routes: []string{unaryCall, duplexCall}})
	handlers := &service{
		handler: func(context.Context, func() error) error {
			served++
			return status.Error(codes.NotFound, "no such thing")
		},
		duplex: func(grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
			served++
			return nil
		},
	}
	site := httptest.NewUnstartedServer(newServer(handlers, limited(limit)...))
	site.Config.Protocols = new(http.Protocols)
	site.Config.Protocols.SetUnencryptedHTTP2(true)
	site.Start()
	defer site.Close()
	client := &http.Client{Transport: &http.Transport{Protocols: site.Config.Protocols}}
	defer client.CloseIdleConnections()

	for _, url := range []string{"http://" + serve(t, handlers, limited(limit)...), site.URL} {
		decoded := 0 // net/http decodes the path
		if url == site.URL {
			decoded = 1
		}
		for _, test := range []struct {
			name, path, body, encoding string
			want                       int
		}{
			{"a call that the handler fails", unaryCall, empty, "", 1},
			{"no message", unaryCall, "", "", 0},
			{"half a message", unaryCall, empty[:4] + "\x02\x00", "", 0},
			{"a malformed message", unaryCall, empty[:4] + "\x02\xff\xff", "", 0},
			{"a message of 4 GiB", unaryCall, "\x00\xff\xff\xff\xff", "", 0},
			{"an unknown compression", unaryCall, empty, "invented", 0},
			{"an unknown method", unaryCall + "s", empty, "", 0},
			{"another case", strings.ToLower(unaryCall), empty, "", 0},
			{"a stream without messages", duplexCall, "", "", 1},
			{"an escaped letter", duplexCall[:len(duplexCall)-1] + "%6c", "", "", decoded},
			{"an escaped slash", strings.Replace(duplexCall, "/Full", "%2FFull", 1), "", "", decoded},
			{"a query", duplexCall + "?x", "", "", decoded},
			{"two slashes first", "/" + duplexCall, "", "", 0},
			{"two slashes inside", strings.Replace(duplexCall, "/Full", "//Full", 1), "", "", 0},
			{"a slash at the end", duplexCall + "/", "", "", 0},
		} {
			counted, served = 0, 0
			r, err := http.NewRequest(http.MethodPost, url+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("Te", "trailers")
			r.Header.Set("Grpc-Encoding", test.encoding)
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if counted != test.want || served != test.want {
				t.Errorf("%s, over net/http %t: got %d calls counted, %d served; want %d", test.name, url == site.URL, counted, served, test.want)
			}
		}
	}
}
