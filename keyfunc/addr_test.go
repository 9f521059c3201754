package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

var remoteAddrs = []struct{ peer, want string }{
	// An IPv4 address is counted whole.
	{"192.0.2.7:4711", "ip:192.0.2.7"},
	{"192.0.2.7", "ip:192.0.2.7"},
	{"192.0.2.8:4711", "ip:192.0.2.8"},

	// One IPv4 address is one bucket however it is written, two are two: not all
	// of IPv4 is the network ::/64 (CVE-2026-30827).
	{"[::ffff:1.2.3.4]:80", "ip:1.2.3.4"},
	{"::ffff:1.2.3.4", "ip:1.2.3.4"},
	{"::ffff:102:304", "ip:1.2.3.4"},
	{"0:0:0:0:0:FFFF:0102:0304", "ip:1.2.3.4"},
	{"[::ffff:5.6.7.8]:80", "ip:5.6.7.8"},

	// An IPv6 address is counted by its /64, in canonical form.
	{"[2001:db8::1]:443", "ip:2001:db8::/64"},
	{"[2001:db8::ffff:ffff:ffff:ffff]:443", "ip:2001:db8::/64"},
	{"2001:DB8:0:0::1", "ip:2001:db8::/64"},
	{"[2001:0db8:0000:0000:0000:0000:0000:0001]:443", "ip:2001:db8::/64"},
	{"[2001:db8:0:1::1]:443", "ip:2001:db8:0:1::/64"},
	{"[::1]:443", "ip:::/64"},

	// Embedded in any other way, an IPv4 address makes an IPv6 address like others.
	{"[2002:c000:207::1]:443", "ip:2002:c000:207::/64"}, // 6to4
	{"[64:ff9b::192.0.2.7]:443", "ip:64:ff9b::/64"},     // NAT64
	{"[::192.0.2.7]:443", "ip:::/64"},                   // v4-compatible

	// The zone is dropped, whatever it holds, and makes no key longer.
	{"[fe80::1%eth0]:443", "ip:fe80::/64"},
	{"fe80::1%eth0/64", "ip:fe80::/64"},
	{"fe80::1%a:b]%c", "ip:fe80::/64"},
	{"[fe80::1%a]:b]:443", "ip:fe80::/64"},
	{"::ffff:1.2.3.4%eth0", "ip:1.2.3.4"},
	{"::1%" + strings.Repeat("A", 4000), "ip:::/64"},
	{"[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "ip:ffff:ffff:ffff:ffff::/64"},

	// What is not an address is anonymous.
	{"", ""},
	{"@", ""}, // a Unix socket
	{"/run/api.sock", ""},
	{"localhost:80", ""},
	{"1.2.3", ""},
	{"1.2.3.4.5", ""},
	{"01.2.3.4:80", ""}, // octal in some parsers, decimal in others
	{"1.2.3.256", ""},
	{"1.2.3.4/32", ""},
	{"1.2.3.4:", ""},
	{"1.2.3.4:http", ""},
	{"1.2.3.4:65536", ""},
	{"1.2.3.4:+80", ""},
	{"1.2.3.4%eth0", ""},
	{"[1.2.3.4]:80", ""},
	{"fe80::1%", ""},
	{"[::1", ""},
	{"::1]", ""},
	{"[::1]x", ""},
	{"[]:80", ""},
	{"[[::1]]:80", ""},
	{"::1::", ""},
	{"\x00", ""},
	{strings.Repeat("1", 1<<20), ""},
}

func TestRemoteAddr(t *testing.T) {
	for _, tt := range remoteAddrs {
		if got := keyOf(t, keyfunc.RemoteAddr, request(tt.peer)); got != tt.want {
			t.Errorf("peer %.60q: got %q; want %q", tt.peer, got, tt.want)
		}
	}
}

// No header changes the key of RemoteAddr.
func TestRemoteAddrIgnoresHeaders(t *testing.T) {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP"} {
		r := request("192.0.2.7:4711", name, "9.9.9.9", name, "for=9.9.9.9")
		if got := keyOf(t, keyfunc.RemoteAddr, r); got != "ip:192.0.2.7" {
			t.Errorf("with %s: got %q; want the peer", name, got)
		}
	}
}

// A request costs one allocation, its key, however long its header is, and also if a client sends a new zone with each.
func TestAddressAllocs(t *testing.T) {
	hops := keyfunc.TrustedProxies("10.0.0.0/8")
	elements := keyfunc.Forwarded("10.0.0.0/8")
	for name, test := range map[string]struct {
		key     keyfunc.Func
		request func(i int) *http.Request
	}{
		"IPv4":      {keyfunc.RemoteAddr, func(int) *http.Request { return request("192.0.2.7:4711") }},
		"IPv6":      {keyfunc.RemoteAddr, func(int) *http.Request { return request("[2001:db8::1]:443") }},
		"mapped":    {keyfunc.RemoteAddr, func(int) *http.Request { return request("[::ffff:1.2.3.4]:80") }},
		"new zones": {keyfunc.RemoteAddr, func(i int) *http.Request { return request(fmt.Sprintf("[fe80::1%%zone%d]:443", i)) }},
		"8 KB of hops": {hops, func(int) *http.Request {
			return request(proxy, "X-Forwarded-For", strings.Repeat("6.6.6.6, ", 900)+"9.9.9.9")
		}},
		"1 MB of trusted hops": {hops, func(int) *http.Request {
			return request(proxy, "X-Forwarded-For", "9.9.9.9"+strings.Repeat(", 10.0.0.2", 1<<16))
		}},
		"1 MB of trusted elements": {elements, func(int) *http.Request {
			return request(proxy, "Forwarded", "for=9.9.9.9"+strings.Repeat(`, for="10.0.0.2"`, 1<<16))
		}},
	} {
		const runs = 10
		var requests []*http.Request
		for i := range runs + 1 {
			requests = append(requests, test.request(i))
		}
		next := 0
		if got := testing.AllocsPerRun(runs, func() { _, _ = test.key(requests[next]); next++ }); got > 1 {
			t.Errorf("%s: got %v allocations; want 1, the key", name, got)
		}
	}
}

func TestIPv6Prefix(t *testing.T) {
	for _, tt := range []struct {
		bits       int
		peer, want string
	}{
		{64, "[2001:db8:1:234::1]:443", "ip:2001:db8:1:234::/64"},
		{56, "[2001:db8:1:234::1]:443", "ip:2001:db8:1:200::/56"},
		{56, "[2001:db8:1:2ff::1]:443", "ip:2001:db8:1:200::/56"},
		{56, "[2001:db8:1:300::1]:443", "ip:2001:db8:1:300::/56"},
		{48, "[2001:db8:1:234::1]:443", "ip:2001:db8:1::/48"},
		{32, "[2001:db8:1:234::1]:443", "ip:2001:db8::/32"},
		// Only IPv6 is counted otherwise.
		{48, "192.0.2.7:4711", "ip:192.0.2.7"},
		{48, "[::ffff:192.0.2.7]:4711", "ip:192.0.2.7"},
		{48, "@", ""},
	} {
		key := keyfunc.IPv6Prefix(tt.bits, keyfunc.RemoteAddr)
		if got := keyOf(t, key, request(tt.peer)); got != tt.want {
			t.Errorf("/%d, peer %s: got %q; want %q", tt.bits, tt.peer, got, tt.want)
		}
	}
}

// Other keys are unchanged.
func TestIPv6PrefixOtherKeys(t *testing.T) {
	for _, k := range []string{
		"", "sub:2001:db8:1:234::/64", "const:ip:2001:db8:1:234::/64", "join:ip:2001:db8:1:234::/64|x",
		"ip:", "ip:/", "ip:/64", "ip:zzz/64", "ip:10.1.2.3/32", "ip:2001:db8:1:234::1", "ip:2001:db8:1:234::/64|x",
	} {
		key := keyfunc.IPv6Prefix(48, func(*http.Request) (string, error) { return k, nil })
		if got := keyOf(t, key, request("")); got != k {
			t.Errorf("got %q; want %q unchanged", got, k)
		}
	}
	cause := errors.New("cause")
	key := keyfunc.IPv6Prefix(48, func(*http.Request) (string, error) { return "", cause })
	if k, err := key(request("")); k != "" || err != cause {
		t.Errorf("got %q, %v; want the error of the wrapped function", k, err)
	}
}
