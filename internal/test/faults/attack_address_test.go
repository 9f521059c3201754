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
