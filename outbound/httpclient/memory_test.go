package httpclient_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// A partner that redirects can invent hosts, and URLs and fields of a megabyte. A client keeps little of them.
func TestMemoryOfInventedHosts(t *testing.T) {
	race.Skip(t)

	const hosts, mib = 10, 1 << 20
	long := strings.Repeat("a", mib)
	says := func(status int, name, value string) func(int) *http.Response {
		return func(i int) *http.Response {
			return answer(status, http.NoBody, name+": "+fmt.Sprintf(value, fmt.Sprint(long, i)))
		}
	}

	for _, tt := range []struct {
		name, url string
		answer    func(i int) *http.Response
	}{
		{"path", "http://h%d.example/" + long, says(200, "Server", "%.0s")},
		{"path, denied", "http://h%d.example/" + long, says(429, "Retry-After", "60%.0s")},
		{"host", "http://" + long + "%d.example/", says(200, "Server", "%.0s")},
		{"host, denied", "http://" + long + "%d.example/", says(429, "Retry-After", "60%.0s")},
		{"policy", "http://h%d.example/", says(200, "RateLimit", `"%s";r=5;t=5`)},
		{"policy of draft 6", "http://h%d.example/", says(200, "RateLimit-Policy", `10;w=60;c="%s"`)},
	} {
		for name, stack := range map[string]func(http.RoundTripper) http.RoundTripper{
			"Adaptive": func(base http.RoundTripper) http.RoundTripper { return &httpclient.Adaptive{Base: base} },
			"Transport": func(base http.RoundTripper) http.RoundTripper {
				return transport(t, httpclient.Config{Base: base, MaxTries: 1})
			},
		} {
			n := 0
			c := stack(roundTrip(func(*http.Request) (*http.Response, error) {
				n++
				resp := tt.answer(n)
				resp.Header.Set("RateLimit-Remaining", "5")
				return resp, nil
			}))

			before := heap()
			for i := range hosts {
				resp, err := c.RoundTrip(request(t, "GET", fmt.Sprintf(tt.url, i), nil))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}

			if grown := heap() - before; grown > hosts*mib/10 {
				t.Errorf("%s, %s: %d requests keep %d KiB; want less than a tenth of their megabytes", name, tt.name, hosts, grown>>10)
			}
			runtime.KeepAlive(c)
		}
	}
}

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first has made unreachable by finalizers
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
