package keyfunc_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

const (
	client = "192.0.2.7:4711"  // not a proxy
	proxy  = "10.0.0.1:50000"  // in 10.0.0.0/8
	proxy6 = "[fd00::1]:50000" // in fd00::/8
)

var forwarded = []struct {
	peer  string
	lines []string // of X-Forwarded-For
	want  string
}{
	// An untrusted peer is the client, whatever it says.
	{client, nil, "ip:192.0.2.7"},
	{client, []string{"9.9.9.9"}, "ip:192.0.2.7"},
	{client, []string{"10.0.0.2"}, "ip:192.0.2.7"},
	{client, []string{"9.9.9.9, 10.0.0.2", "10.0.0.3"}, "ip:192.0.2.7"},
	{"[::ffff:192.0.2.7]:4711", []string{"9.9.9.9"}, "ip:192.0.2.7"},

	// The client is the last hop that is not trusted; it may have invented earlier hops.
	{proxy, []string{"9.9.9.9"}, "ip:9.9.9.9"},
	{proxy, []string{"6.6.6.6, 9.9.9.9"}, "ip:9.9.9.9"},
	{proxy, []string{"6.6.6.6,9.9.9.9,10.0.0.2, 10.0.0.3"}, "ip:9.9.9.9"},
	{proxy, []string{"garbage, 9.9.9.9, 10.0.0.2"}, "ip:9.9.9.9"},
	{proxy, []string{"10.0.0.9, 9.9.9.9"}, "ip:9.9.9.9"},
	{proxy6, []string{"6.6.6.6, 2001:db8::1"}, "ip:2001:db8::/64"},
	{"[::ffff:10.0.0.1]:50000", []string{"9.9.9.9"}, "ip:9.9.9.9"},

	// All lines are one list.
	{proxy, []string{"6.6.6.6", "9.9.9.9"}, "ip:9.9.9.9"},
	{proxy, []string{"6.6.6.6, 9.9.9.9", "10.0.0.2"}, "ip:9.9.9.9"},
	{proxy, []string{"9.9.9.9", "10.0.0.2", "10.0.0.3, 10.0.0.4"}, "ip:9.9.9.9"},

	// A hop may be written with port, brackets, zone and blanks, in any spelling.
	{proxy, []string{"9.9.9.9:1234"}, "ip:9.9.9.9"},
	{proxy, []string{" \t9.9.9.9\t "}, "ip:9.9.9.9"},
	{proxy, []string{"[2001:db8::1]:443"}, "ip:2001:db8::/64"},
	{proxy, []string{"[2001:db8::1]"}, "ip:2001:db8::/64"},
	{proxy, []string{"2001:DB8:0::1%eth0"}, "ip:2001:db8::/64"},
	{proxy, []string{"::ffff:9.9.9.9"}, "ip:9.9.9.9"},
	{proxy, []string{"9.9.9.9, ::ffff:10.0.0.2, [fd00::2%x]:80, 10.0.0.3:443"}, "ip:9.9.9.9"},

	// A hop that is not an address stops the walk: the last good hop, at the start the peer.
	{proxy, []string{"9.9.9.9, garbage"}, "ip:10.0.0.1"},
	{proxy, []string{"9.9.9.9, garbage, 10.0.0.2"}, "ip:10.0.0.2"},
	{proxy, []string{"9.9.9.9", "garbage", "10.0.0.2"}, "ip:10.0.0.2"},
	{proxy, []string{"unknown"}, "ip:10.0.0.1"},
	{proxy, []string{"01.2.3.4"}, "ip:10.0.0.1"},
	{proxy, []string{"9.9.9.9;10.0.0.2"}, "ip:10.0.0.1"},
	{proxy, []string{`"9.9.9.9"`}, "ip:10.0.0.1"},
	{proxy, []string{"9.9.9.9, for=10.0.0.2"}, "ip:10.0.0.1"},

	// So does an empty one.
	{proxy, []string{""}, "ip:10.0.0.1"},
	{proxy, []string{","}, "ip:10.0.0.1"},
	{proxy, []string{"9.9.9.9,"}, "ip:10.0.0.1"},
	{proxy, []string{"9.9.9.9, , 10.0.0.2"}, "ip:10.0.0.2"},
	{proxy, []string{"9.9.9.9", ""}, "ip:10.0.0.1"},
	{proxy, []string{"", "9.9.9.9"}, "ip:9.9.9.9"},

	// All trusted: the first of them. Without the header: the peer.
	{proxy, []string{"10.0.0.2, fd00::2, 10.0.0.3"}, "ip:10.0.0.2"},
	{proxy6, []string{"fd00::2"}, "ip:fd00::/64"},
	{proxy, nil, "ip:10.0.0.1"},

	// A peer without an address is in no network.
	{"@", []string{"9.9.9.9"}, ""},
	{"", []string{"9.9.9.9"}, ""},

	// A long header is walked from its end.
	{proxy, []string{strings.Repeat("6.6.6.6, ", 900) + "9.9.9.9"}, "ip:9.9.9.9"},
	{proxy, []string{strings.Repeat(",", 1<<20)}, "ip:10.0.0.1"},
	{proxy, []string{"9.9.9.9" + strings.Repeat(", 10.0.0.2", 1<<16)}, "ip:9.9.9.9"},
	{proxy, []string{strings.Repeat("9", 1<<20)}, "ip:10.0.0.1"},
	{proxy, []string{"2001:db8::1%" + strings.Repeat("A", 4000)}, "ip:2001:db8::/64"},
}

func TestTrustedProxies(t *testing.T) {
	for name, key := range map[string]keyfunc.Func{
		"texts":    keyfunc.TrustedProxies("10.0.0.0/8", "fd00::/8"),
		"prefixes": keyfunc.TrustedProxies(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")),
		"mapped":   keyfunc.TrustedProxies("::ffff:10.0.0.0/104", "fd00::/8"),
		"unmasked": keyfunc.TrustedProxies("10.1.2.3/8", "fd00::1/8"),
	} {
		for _, tt := range forwarded {
			r := request(tt.peer)
			r.Header["X-Forwarded-For"] = tt.lines
			if got := keyOf(t, key, r); got != tt.want {
				t.Errorf("%s, peer %s, X-Forwarded-For %.60q: got %q; want %q", name, tt.peer, tt.lines, got, tt.want)
			}
		}
	}
}

// A prefix that is an address trusts only that address.
func TestTrustedProxiesSingleAddress(t *testing.T) {
	key := keyfunc.TrustedProxies("10.0.0.1", "::1")
	for peer, want := range map[string]string{
		"10.0.0.1:80": "ip:9.9.9.9",
		"10.0.0.2:80": "ip:10.0.0.2",
		"[::1]:80":    "ip:9.9.9.9",
		"[::2]:80":    "ip:::/64",
	} {
		if got := keyOf(t, key, request(peer, "X-Forwarded-For", "9.9.9.9")); got != want {
			t.Errorf("peer %s: got %q; want %q", peer, got, want)
		}
	}
}

func TestTrustedHops(t *testing.T) {
	for _, tt := range []struct {
		n     int
		peer  string
		lines []string
		want  string
	}{
		// The n-th from the right, over all lines.
		{1, proxy, []string{"9.9.9.9"}, "ip:9.9.9.9"},
		{1, proxy, []string{"6.6.6.6, 9.9.9.9"}, "ip:9.9.9.9"},
		{2, proxy, []string{"6.6.6.6, 9.9.9.9, 172.16.0.1"}, "ip:9.9.9.9"},
		{2, proxy, []string{"6.6.6.6, 9.9.9.9", "172.16.0.1"}, "ip:9.9.9.9"},
		{3, proxy, []string{"6.6.6.6", "9.9.9.9", "172.16.0.1", "172.16.0.2"}, "ip:9.9.9.9"},
		{1, proxy, []string{" [2001:db8::1]:443 "}, "ip:2001:db8::/64"},
		{1, proxy, []string{"::ffff:9.9.9.9"}, "ip:9.9.9.9"},
		// Hops after it are counted and not read.
		{2, proxy, []string{"9.9.9.9, unknown"}, "ip:9.9.9.9"},
		{2, proxy, []string{"9.9.9.9,"}, "ip:9.9.9.9"},
		// The peer's own address is not looked at, so that a proxy may use a Unix socket.
		{1, "@", []string{"6.6.6.6, 9.9.9.9"}, "ip:9.9.9.9"},
		// Fewer hops, or none that is an address: the peer.
		{1, proxy, nil, "ip:10.0.0.1"},
		{2, proxy, []string{"9.9.9.9"}, "ip:10.0.0.1"},
		{1 << 30, proxy, []string{"9.9.9.9"}, "ip:10.0.0.1"},
		{1, proxy, []string{""}, "ip:10.0.0.1"},
		{1, proxy, []string{"9.9.9.9, garbage"}, "ip:10.0.0.1"},
		{2, proxy, []string{"9.9.9.9, garbage, 172.16.0.1"}, "ip:10.0.0.1"},
		{2, proxy, []string{"9.9.9.9,,172.16.0.1"}, "ip:10.0.0.1"},
		{1, "@", nil, ""},
	} {
		r := request(tt.peer)
		r.Header["X-Forwarded-For"] = tt.lines
		if got := keyOf(t, keyfunc.TrustedHops(tt.n), r); got != tt.want {
			t.Errorf("n %d, peer %s, X-Forwarded-For %q: got %q; want %q", tt.n, tt.peer, tt.lines, got, tt.want)
		}
	}
}

func TestHeader(t *testing.T) {
	for _, tt := range []struct {
		peer  string
		lines []string // of X-Real-Ip
		want  string
	}{
		// Read from a trusted peer ...
		{proxy, []string{"9.9.9.9"}, "ip:9.9.9.9"},
		{proxy, []string{"[2001:db8::1]:443"}, "ip:2001:db8::/64"},
		{proxy, []string{"::ffff:9.9.9.9"}, "ip:9.9.9.9"},
		{proxy, []string{"10.0.0.2"}, "ip:10.0.0.2"},
		// ... and from no other.
		{client, []string{"9.9.9.9"}, "ip:192.0.2.7"},
		{"@", []string{"9.9.9.9"}, ""},
		// Missing, twice, a list or garbage: the peer.
		{proxy, nil, "ip:10.0.0.1"},
		{proxy, []string{"6.6.6.6", "9.9.9.9"}, "ip:10.0.0.1"},
		{proxy, []string{"9.9.9.9", "9.9.9.9"}, "ip:10.0.0.1"},
		{proxy, []string{"6.6.6.6, 9.9.9.9"}, "ip:10.0.0.1"},
		{proxy, []string{""}, "ip:10.0.0.1"},
		{proxy, []string{"garbage"}, "ip:10.0.0.1"},
		{proxy, []string{strings.Repeat("9", 1<<20)}, "ip:10.0.0.1"},
	} {
		r := request(tt.peer, "X-Forwarded-For", "7.7.7.7")
		r.Header["X-Real-Ip"] = tt.lines
		for _, key := range []keyfunc.Func{
			keyfunc.AddrHeader("x-real-ip", "10.0.0.0/8"),
			keyfunc.AddrHeader("X-Real-IP", netip.MustParsePrefix("10.0.0.0/8")),
		} {
			if got := keyOf(t, key, r); got != tt.want {
				t.Errorf("peer %s, X-Real-IP %.60q: got %q; want %q", tt.peer, tt.lines, got, tt.want)
			}
		}
	}
}
