package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// addressHeaders are where frameworks, proxies and libraries look for the
// client's address.
var addressHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP",
	"X-Client-IP", "X-Cluster-Client-IP", "X-Azure-ClientIP", "X-Originating-IP", "X-Remote-Addr", "Via",
}

func anyAddr() string {
	return netip.AddrFrom4([4]byte{byte(1 + rand.IntN(220)), byte(rand.IntN(256)), byte(rand.IntN(256)), byte(rand.IntN(256))}).String()
}

func TestFault69ForwardedHeadersAreIgnored(t *testing.T) {
	o := apart(t, fmt.Sprintf("other addresses in %d headers", len(addressHeaders)))
	const burst = 10
	eachFramework(t, func(t *testing.T, f sitetest.Framework) {
		s := openSite(t, o, sitetest.Config{Build: f.Build, Policies: []middleware.Policy{{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(burst)}}})
		passed := 0
		for i := range amount(100, 1000) {
			header := []string{addressHeaders[i%len(addressHeaders)] + ": " + anyAddr()}
			if i%2 == 0 {
				for _, name := range addressHeaders {
					header = append(header, name+": "+anyAddr())
				}
			}
			if s.Do(t, "GET /ok", header...).StatusCode == http.StatusOK {
				passed++
			}
		}
		o.over.Add(int64(max(passed-burst, 0)))
		expect(t, "passed", passed, burst)
	})
}

func TestFault70ClientPartOfAForwardedHeaderIsIgnored(t *testing.T) {
	o := apart(t, "X-Forwarded-For and Forwarded: random, real")
	const burst = 5
	for _, tt := range []struct {
		key              keyfunc.Func
		header, appended string // the header as a client starts it, and what the proxy appends for the address
	}{
		{keyfunc.TrustedProxies("127.0.0.1"), "X-Forwarded-For: %s, 127.0.0.1", ", %s"},
		{keyfunc.Forwarded("127.0.0.1"), "Forwarded: for=%s, for=127.0.0.1", `, for="%s:4711";proto=http`},
		{keyfunc.Forwarded("127.0.0.1"), `Forwarded: for=%s;host="a`, ", for=%s"}, // the client's quote stays open
	} {
		eachFramework(t, func(t *testing.T, f sitetest.Framework) {
			s := openSite(t, o, sitetest.Config{Build: f.Build, Policies: []middleware.Policy{{Name: "client", Key: tt.key, Limit: gcra.PerDay(burst)}}})
			forwarded := func(client string) string {
				return fmt.Sprintf(tt.header, anyAddr()) + fmt.Sprintf(tt.appended, client)
			}
			passed := 0
			for range 30 {
				if s.Do(t, "GET /ok", forwarded("203.0.113.9")).StatusCode == http.StatusOK {
					passed++
				}
			}
			o.over.Add(int64(max(passed-burst, 0)))
			expect(t, "passed", passed, burst)
			expect(t, "subject", s.Last().Results[0].Subject, "ip:203.0.113.9")
			expect(t, "another client of the proxy", s.Do(t, "GET /ok", forwarded("203.0.113.10")).StatusCode, 200)
			// The header of a peer that is not a proxy is not read.
			s.Client = from(t, "127.0.0.2")
			expect(t, "past the proxy", s.Do(t, "GET /ok", forwarded("203.0.113.10")).StatusCode, 200)
			expect(t, "subject", s.Last().Results[0].Subject, "ip:127.0.0.2")
		})
	}
}
