package faults

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
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
	o := fault(t, fmt.Sprintf("other addresses in %d headers", len(addressHeaders)))
	const burst = 10
	eachFramework(t, func(t *testing.T, f framework) {
		s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(burst)}}})
		passed := 0
		for i := range sized(100, 1000) {
			header := []string{addressHeaders[i%len(addressHeaders)] + ": " + anyAddr()}
			if i%2 == 0 {
				for _, name := range addressHeaders {
					header = append(header, name+": "+anyAddr())
				}
			}
			if s.do(t, "GET /ok", header...).StatusCode == http.StatusOK {
				passed++
			}
		}
		o.over.Add(int64(max(passed-burst, 0)))
		expect(t, "passed", passed, burst)
	})
}

func TestFault70ClientPartOfAForwardedHeaderIsIgnored(t *testing.T) {
	o := fault(t, "X-Forwarded-For and Forwarded: random, real")
	const burst = 5
	for _, tt := range []struct {
		key              keyfunc.Func
		header, appended string // the header as a client starts it, and what the proxy appends for the address
	}{
		{keyfunc.TrustedProxies("127.0.0.1"), "X-Forwarded-For: %s, 127.0.0.1", ", %s"},
		{keyfunc.Forwarded("127.0.0.1"), "Forwarded: for=%s, for=127.0.0.1", `, for="%s:4711";proto=http`},
		{keyfunc.Forwarded("127.0.0.1"), `Forwarded: for=%s;host="a`, ", for=%s"}, // the client's quote stays open
	} {
		eachFramework(t, func(t *testing.T, f framework) {
			s := openSite(t, o, setup{framework: f, policies: []middleware.Policy{{Name: "client", Key: tt.key, Limit: gcra.PerDay(burst)}}})
			forwarded := func(client string) string {
				return fmt.Sprintf(tt.header, anyAddr()) + fmt.Sprintf(tt.appended, client)
			}
			passed := 0
			for range 30 {
				if s.do(t, "GET /ok", forwarded("203.0.113.9")).StatusCode == http.StatusOK {
					passed++
				}
			}
			o.over.Add(int64(max(passed-burst, 0)))
			expect(t, "passed", passed, burst)
			expect(t, "who was counted", s.lastDecision().Results[0].Subject, "ip:203.0.113.9")
			expect(t, "another client of the proxy", s.do(t, "GET /ok", forwarded("203.0.113.10")).StatusCode, 200)
			// A peer that is no proxy is not asked at all.
			expect(t, "past the proxy", s.doFrom(t, from(t, "127.0.0.2"), "GET /ok", forwarded("203.0.113.10")).StatusCode, 200)
			expect(t, "who was counted", s.lastDecision().Results[0].Subject, "ip:127.0.0.2")
		})
	}
}

func TestFault71OddForwardedLinesStopAtTheLastGoodHop(t *testing.T) {
	o := fault(t, "several lines, empty entries, garbage, 8 KB")
	s := openSite(t, o, setup{policies: []middleware.Policy{{Name: "client", Key: keyfunc.TrustedProxies("127.0.0.0/8", "10.0.0.0/8"), Limit: gcra.PerDay(1_000_000).WithBurst(1000)}}})
	const line = "X-Forwarded-For: "
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{[]string{"6.6.6.6", "9.9.9.9"}, "ip:9.9.9.9"},
		{[]string{"6.6.6.6", "9.9.9.9", "10.1.2.3"}, "ip:9.9.9.9"},
		{[]string{"6.6.6.6, 9.9.9.9", "10.1.2.3, 10.9.9.9"}, "ip:9.9.9.9"},
		{[]string{"9.9.9.9, garbage"}, "ip:127.0.0.1"},
		{[]string{"9.9.9.9, garbage, 10.1.2.3"}, "ip:10.1.2.3"},
		{[]string{"9.9.9.9,"}, "ip:127.0.0.1"},
		{[]string{"9.9.9.9", ""}, "ip:127.0.0.1"},
		{[]string{"9.9.9.9,,10.1.2.3"}, "ip:10.1.2.3"},
		{[]string{strings.Repeat("6.6.6.6, ", 900) + "9.9.9.9"}, "ip:9.9.9.9"},
		{[]string{strings.Repeat("x", 8<<10) + ", 10.1.2.3"}, "ip:10.1.2.3"},
		{[]string{"9.9.9.9, " + strings.Repeat("10.1.2.3, ", 800) + "10.1.2.3"}, "ip:9.9.9.9"},
		{[]string{"9.9.9.9, \xff\xfe"}, "ip:127.0.0.1"},
		{[]string{"unknown"}, "ip:127.0.0.1"},
		{[]string{"9.9.9.9:1234", "10.0.0.1:99"}, "ip:9.9.9.9"},
	} {
		request := "GET /ok HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
		for _, l := range tt.lines {
			request += line + l + "\r\n"
		}
		a := s.raw(t, request+"\r\n")
		name := fmt.Sprintf("%.60q", tt.lines)
		if a == nil {
			t.Errorf("%s: the server hung up", name)
			continue
		}
		expect(t, name, []any{a.StatusCode, s.lastDecision().Results[0].Subject}, []any{200, tt.want})
	}
}

func TestFault72SpoofingAVictimSparesItsBucket(t *testing.T) {
	o := fault(t, "the victim's address in every header")
	const burst = 5
	for name, key := range map[string]keyfunc.Func{
		"RemoteAddr":     keyfunc.RemoteAddr,
		"TrustedProxies": keyfunc.TrustedProxies("127.0.0.1"),
		"Forwarded":      keyfunc.Forwarded("127.0.0.1"),
		"Header":         keyfunc.Header("X-Real-IP", "127.0.0.1"),
	} {
		s := openSite(t, o, setup{policies: []middleware.Policy{{Name: "all", Key: key, Limit: gcra.PerDay(burst)}}})
		attacker, victim := from(t, "127.0.0.3"), from(t, "127.0.0.2")
		var header []string
		for _, h := range addressHeaders {
			header = append(header, h+": 127.0.0.2")
		}
		passed := 0
		for range 30 {
			if s.doFrom(t, attacker, "GET /ok", header...).StatusCode == http.StatusOK {
				passed++
			}
		}
		o.over.Add(int64(max(passed-burst, 0)))
		expect(t, name+": the attacker passed", passed, burst)
		a := s.doFrom(t, victim, "GET /ok")
		expect(t, name+": the victim's first request", []any{a.StatusCode, a.Header.Get("RateLimit-Remaining")}, []any{200, "4"})
	}
}

func TestFault73StrippedHeaderLeavesTheProxy(t *testing.T) {
	o := fault(t, "Connection: X-Real-IP through a ReverseProxy")
	const burst = 5
	for _, tt := range []struct {
		header string
		key    keyfunc.Func
	}{
		{"X-Real-IP", keyfunc.Header("X-Real-IP", "127.0.0.1")},
		{"X-Forwarded-For", keyfunc.TrustedProxies("127.0.0.1")},
	} {
		s := openSite(t, o, setup{policies: []middleware.Policy{{Name: "all", Key: tt.key, Limit: gcra.PerDay(burst)}}})
		target, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		// Of the two proxies the first sets the header and the second, which does
		// not know it, does what the client's Connection field says.
		strip := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header[http.CanonicalHeaderKey(tt.header)] = r.In.Header[http.CanonicalHeaderKey(tt.header)]
			if strings.Contains(strings.Join(r.In.Header["Connection"], ","), tt.header) {
				r.Out.Header.Del(tt.header)
			}
		}}
		proxy := openSite(t, o, setup{policies: []middleware.Policy{{Name: "all", Key: everybody, Limit: gcra.PerDay(1000)}},
			wrap: func(http.Handler) http.Handler { return strip }})
		passed := 0
		for i := range 20 {
			if proxy.do(t, "GET /ok", tt.header+fmt.Sprintf(": 203.0.113.%d", i), "Connection: "+tt.header).StatusCode == http.StatusOK {
				passed++
			}
		}
		o.over.Add(int64(max(passed-burst, 0)))
		expect(t, tt.header+" stripped: passed", passed, burst)
		expect(t, tt.header+" stripped: who was counted", s.lastDecision().Results[0].Subject, "ip:127.0.0.1")
		expect(t, tt.header+" left alone", proxy.do(t, "GET /ok", tt.header+": 203.0.113.200").StatusCode, 200)
		expect(t, tt.header+" left alone: who was counted", s.lastDecision().Results[0].Subject, "ip:203.0.113.200")
	}
}

// throughProxy sends one request for each address, as a trusted proxy reports
// it, and returns how many buckets they were counted in and how many passed.
func throughProxy(t *testing.T, o *outcome, key keyfunc.Func, burst int64, addrs []string) (buckets, passed int) {
	t.Helper()
	seen := make(map[string]bool)
	s := openSite(t, o, setup{policies: []middleware.Policy{{Name: "all", Key: key, Limit: gcra.PerDay(burst)}}})
	for _, addr := range addrs {
		if s.do(t, "GET /ok", "X-Forwarded-For: "+addr).StatusCode == http.StatusOK {
			passed++
		}
		seen[s.lastDecision().Results[0].Subject] = true
	}
	return len(seen), passed
}

func TestFault74AddressesOfOnePrefixShareABucket(t *testing.T) {
	o := fault(t, "rotation within /64, /56 and /48")
	trusted := keyfunc.TrustedProxies("127.0.0.1")
	for _, tt := range []struct {
		bits   int
		key    keyfunc.Func
		format string
	}{
		{64, trusted, "2001:db8:1:2:%x:%x:%x:%x"},
		{56, keyfunc.IPv6Prefix(56, trusted), "2001:db8:1:2%02[1]x:%[2]x:%[3]x:%[4]x:%[1]x"},
		{48, keyfunc.IPv6Prefix(48, trusted), "2001:db8:1:%x:%x:%x:%x:7"},
	} {
		var addrs []string
		for range sized(60, 1000) {
			addrs = append(addrs, fmt.Sprintf(tt.format, rand.IntN(256), rand.IntN(1<<16), rand.IntN(1<<16), rand.IntN(1<<16)))
		}
		buckets, passed := throughProxy(t, o, tt.key, 3, addrs)
		o.over.Add(int64(max(passed-3, 0)))
		expect(t, fmt.Sprintf("/%d: buckets and passed", tt.bits), []int{buckets, passed}, []int{1, 3})
		buckets, _ = throughProxy(t, o, tt.key, 3, []string{"2001:db8:1:200::1", "2001:db8:2:200::1"})
		expect(t, fmt.Sprintf("/%d: two customers", tt.bits), buckets, 2)
	}
}

func TestFault75AddressInBothSpellingsIsOne(t *testing.T) {
	o := fault(t, "IPv4-mapped, 6to4, NAT64, IPv4-compatible")
	trusted := keyfunc.TrustedProxies("127.0.0.1")
	for _, tt := range []struct {
		name    string
		addrs   []string
		buckets int
	}{
		{"one IPv4 address, mapped and not", []string{"1.2.3.4", "::ffff:1.2.3.4", "::ffff:102:304", "::FFFF:1.2.3.4", "0:0:0:0:0:ffff:1.2.3.4", "[::ffff:1.2.3.4]:80"}, 1},
		{"two IPv4 addresses, mapped", []string{"::ffff:1.2.3.4", "::ffff:1.2.3.5"}, 2},
		{"two IPv4 addresses", []string{"1.2.3.4", "1.2.3.5"}, 2},
		{"6to4 of two IPv4 addresses", []string{"2002:102:304::1", "2002:102:305::1"}, 2},
		{"6to4 of one", []string{"2002:102:304::1", "2002:102:304::2"}, 1},
		{"NAT64 is by prefix", []string{"64:ff9b::102:304", "64:ff9b::102:305"}, 1},
		{"IPv4-compatible is by prefix", []string{"::1.2.3.4", "::102:305"}, 1},
		{"and none of them is IPv4", []string{"1.2.3.4", "2002:102:304::1", "64:ff9b::102:304", "::1.2.3.4"}, 4},
	} {
		buckets, _ := throughProxy(t, o, trusted, 1, tt.addrs)
		expect(t, tt.name, buckets, tt.buckets)
	}
}

func TestFault76ZoneMakesNoKey(t *testing.T) {
	o := fault(t, "zones, one of 4,000 characters")
	trusted := keyfunc.TrustedProxies("127.0.0.1")
	s := openSite(t, o, setup{policies: []middleware.Policy{{Name: "all", Key: trusted, Limit: gcra.PerDay(1000)}}})
	for addr, want := range map[string]string{
		"fe80::1%eth0":                          "ip:fe80::/64",
		"fe80::1%x" + strings.Repeat("y", 4000): "ip:fe80::/64",
		"::1%" + strings.Repeat("A", 4000):      "ip:::/64",
		"::1%eth0/64":                           "ip:::/64",
		"[fe80::1%eth1]:443":                    "ip:fe80::/64",
		"1.2.3.4%eth0":                          "ip:127.0.0.1",
		"::1%":                                  "ip:127.0.0.1",
	} {
		a := s.do(t, "GET /ok", "X-Forwarded-For: "+addr)
		expect(t, fmt.Sprintf("%.40s", addr), []any{a.StatusCode, s.lastDecision().Results[0].Subject}, []any{200, want})
	}
}

func TestFault77AddressesAreCanonical(t *testing.T) {
	o := fault(t, "ports, brackets, upper case, leading zeros")
	trusted := keyfunc.TrustedProxies("127.0.0.1")
	s := openSite(t, o, setup{policies: []middleware.Policy{{Name: "all", Key: trusted, Limit: gcra.PerDay(1000)}}})
	counted := func(addr string) string {
		expect(t, addr, s.do(t, "GET /ok", "X-Forwarded-For: "+addr).StatusCode, 200)
		return s.lastDecision().Results[0].Subject
	}
	for addr, want := range map[string]string{
		"1.2.3.4":             "ip:1.2.3.4",
		"1.2.3.4:80":          "ip:1.2.3.4",
		"[2001:db8::1]:443":   "ip:2001:db8::/64",
		"[2001:db8::1]":       "ip:2001:db8::/64",
		"2001:DB8::1":         "ip:2001:db8::/64",
		"2001:0db8:0000::0:1": "ip:2001:db8::/64",
		"01.2.3.4":            "ip:127.0.0.1",
		"1.2.3.4.":            "ip:127.0.0.1",
		"1.2.3":               "ip:127.0.0.1",
		"0x1.2.3.4":           "ip:127.0.0.1",
		"16909060":            "ip:127.0.0.1",
		"1.2.3.4:99999":       "ip:127.0.0.1",
		"1.2.3.4/32":          "ip:127.0.0.1",
		"2001:db8::1::":       "ip:127.0.0.1",
		`"1.2.3.4"`:           "ip:127.0.0.1",
	} {
		expect(t, addr, counted(addr), want)
	}
	// What a key names is counted by that key, so there is one of each.
	for range sized(100, 5000) {
		addr := anyAddr()
		if rand.IntN(2) == 0 {
			var b [16]byte
			for i := range b {
				b[i] = byte(rand.IntN(256) * rand.IntN(2))
			}
			addr = netip.AddrFrom16(b).Unmap().String()
		}
		key := counted(addr)
		if key == "ip:127.0.0.1" {
			continue // the proxy's network, or not an address
		}
		named, _, _ := strings.Cut(strings.TrimPrefix(key, "ip:"), "/")
		expect(t, addr+" and its network "+named, counted(named), key)
	}
}
