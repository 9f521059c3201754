package keyfunc_test

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

var rfc7239 = []struct {
	lines []string // of Forwarded, from a proxy in 10.0.0.0/8, fd00::/8 or 198.51.100.17
	want  string
}{
	// The examples of RFC 7239: section 4,
	{[]string{`for="_gazonk"`}, "ip:10.0.0.1"},
	{[]string{`For="[2001:db8:cafe::17]:4711"`}, "ip:2001:db8:cafe::/64"},
	{[]string{`for=192.0.2.60;proto=http;by=203.0.113.43`}, "ip:192.0.2.60"},
	{[]string{`for=192.0.2.43, for=198.51.100.17`}, "ip:192.0.2.43"},
	// section 6,
	{[]string{`for="192.0.2.43:47011"`}, "ip:192.0.2.43"},
	{[]string{`for="[2001:db8:cafe::17]:47011"`}, "ip:2001:db8:cafe::/64"},
	{[]string{`for=_hidden, for=_SEVKISEK`}, "ip:10.0.0.1"},
	// and section 7.1.
	{[]string{`for=192.0.2.43, for="[2001:db8:cafe::17]"`}, "ip:2001:db8:cafe::/64"},
	{[]string{`for=192.0.2.43,for="[2001:db8:cafe::17]",for=unknown`}, "ip:10.0.0.1"},
	{[]string{`for=192.0.2.43`, `for="[2001:db8:cafe::17]", for=unknown`}, "ip:10.0.0.1"},

	// The client is the last address that is not trusted, over all lines.
	{nil, "ip:10.0.0.1"},
	{[]string{`for=6.6.6.6, for=9.9.9.9, for=10.0.0.2, for="[fd00::2]:80"`}, "ip:9.9.9.9"},
	{[]string{`for=6.6.6.6`, `for=9.9.9.9`, `for=10.0.0.2`}, "ip:9.9.9.9"},
	{[]string{`for=10.0.0.2, for=10.0.0.3`}, "ip:10.0.0.2"},
	{[]string{`for="[::ffff:9.9.9.9]"`}, "ip:9.9.9.9"},

	// Names in any case, parameters in any order, quotes around anything, escapes.
	{[]string{`by=_x;FOR=9.9.9.9;host="a,b;c=\"d\\"`}, "ip:9.9.9.9"},
	{[]string{`for="9.9.9.9";ext=1`}, "ip:9.9.9.9"},
	{[]string{`for="\9.9.9.\9"`}, "ip:9.9.9.9"},
	{[]string{`for=6.6.6.6,for=9.9.9.9;host="\\\""`}, "ip:9.9.9.9"},
	{[]string{`;;for=9.9.9.9;`}, "ip:9.9.9.9"},
	{[]string{" \tfor=9.9.9.9 ; proto=http \t"}, "ip:9.9.9.9"},
	{[]string{`for="9.9.9.9:_port-1"`}, "ip:9.9.9.9"},
	{[]string{`for="[2001:db8::1]:_p"`}, "ip:2001:db8::/64"},
	// Without the quotes and brackets that the RFC wants.
	{[]string{`for=9.9.9.9:80`}, "ip:9.9.9.9"},
	{[]string{`for=[2001:db8::1%eth0]:80`}, "ip:2001:db8::/64"},
	{[]string{`for=2001:db8::1`}, "ip:2001:db8::/64"},
	{[]string{`for="2001:db8::1"`}, "ip:2001:db8::/64"},

	// An element without an address, or one that is not well-formed, stops the walk.
	{[]string{``}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9,`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9, , for=10.0.0.2`}, "ip:10.0.0.2"},
	{[]string{`for=9.9.9.9, proto=http`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9, for=unknown, for=10.0.0.2`}, "ip:10.0.0.2"},
	{[]string{`9.9.9.9`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9;for=6.6.6.6`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9;for=9.9.9.9`}, "ip:10.0.0.1"},
	{[]string{`for=""`}, "ip:10.0.0.1"},
	{[]string{`for=`}, "ip:10.0.0.1"},
	{[]string{`for =9.9.9.9`}, "ip:10.0.0.1"},
	{[]string{`for= 9.9.9.9`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9;proto`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9;pro to=http`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9 proto=http`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9;proto=http=1`}, "ip:10.0.0.1"},
	{[]string{`for="9.9.9.9`}, "ip:10.0.0.1"},
	{[]string{`for=9.9.9.9"`}, "ip:10.0.0.1"},
	{[]string{`for="9.9.9.9"x`}, "ip:10.0.0.1"},
	{[]string{`for="9.9.9.9\"`}, "ip:10.0.0.1"},
	{[]string{`for="9.9.9.9:_"`}, "ip:10.0.0.1"},
	{[]string{`for="9.9.9.9:_a!"`}, "ip:10.0.0.1"},
	{[]string{`for='9.9.9.9'`}, "ip:10.0.0.1"},
	{[]string{`for=01.2.3.4`}, "ip:10.0.0.1"},

	// A quote that the client left open does not reach what the proxy appended.
	{[]string{`for="abc, for=9.9.9.9`}, "ip:9.9.9.9"},
	{[]string{`for="abc\, for=9.9.9.9`}, "ip:9.9.9.9"},
	{[]string{`for=6.6.6.6;x=", for="9.9.9.9:80"`}, "ip:9.9.9.9"},
	{[]string{`"`, `for=9.9.9.9;host="x,y"`}, "ip:9.9.9.9"},
	{[]string{`for=6.6.6.6, x="`, `for=10.0.0.2`}, "ip:10.0.0.2"},
	// The same between elements of trusted proxies: there the walk has to stop.
	{[]string{`for=6.6.6.6;x=", for=10.0.0.3, for=10.0.0.2`}, "ip:10.0.0.3"},

	// The Forwarded rows of realclientip-go, by our rules.
	{[]string{`For=5.5.5.5`, `For=6.6.6.6`}, "ip:6.6.6.6"},
	{[]string{`host=what;for=6.6.6.6;proto=https`, `Host=blah;For="2607:f8b0:4004:83f::18";Proto=https`}, "ip:2607:f8b0:4004:83f::/64"},
	{[]string{`host=what;for=6.6.6.6;proto=https`, `For="[2607:f8b0:4004:83f::18%eth0]:3393";Proto=https`, `Host=blah;For=[fd00::1111%zone]:9943;Proto=https`}, "ip:2607:f8b0:4004:83f::/64"},
	{[]string{`host=what;for=:48485;proto=https,For=2.2.2.2`, `For="", For="::ffff:10.168.1.1"`}, "ip:10.168.1.1"},
	{[]string{`For=99.99.99.99, For=10.4.4.8, For="[fd07:f8b0:4004:83f::200e]:4747"`, `For=10.2.2.2:8883, For=fd64:ff9b::188.0.2.200, For=10.3.5.5, For=fd01:db7::abcd`}, "ip:99.99.99.99"},

	// A long header is walked from its end.
	{[]string{strings.Repeat("for=6.6.6.6, ", 9000) + "for=9.9.9.9"}, "ip:9.9.9.9"},
	{[]string{"for=9.9.9.9" + strings.Repeat(`, for="10.0.0.2"`, 1<<16)}, "ip:9.9.9.9"},
	{[]string{strings.Repeat(`"`, 1<<20)}, "ip:10.0.0.1"},
	{[]string{strings.Repeat(`\"`, 1<<19)}, "ip:10.0.0.1"},
	{[]string{`for="` + strings.Repeat(`\`, 1<<20) + `"`}, "ip:10.0.0.1"},
	{[]string{strings.Repeat(`;`, 1<<20)}, "ip:10.0.0.1"},
}

func TestForwarded(t *testing.T) {
	for name, key := range map[string]keyfunc.Func{
		"texts":    keyfunc.Forwarded("10.0.0.0/8", "fd00::/8", "198.51.100.17"),
		"prefixes": keyfunc.Forwarded(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("198.51.100.17/32")),
	} {
		for _, tt := range rfc7239 {
			for _, peer := range []struct{ addr, want string }{{proxy, tt.want}, {client, "ip:192.0.2.7"}, {"@", ""}} {
				r := request(peer.addr, "X-Forwarded-For", "7.7.7.7")
				r.Header["Forwarded"] = tt.lines
				if got := keyOf(t, key, r); got != peer.want {
					t.Errorf("%s, peer %s, Forwarded %.70q: got %q; want %q", name, peer.addr, tt.lines, got, peer.want)
				}
			}
		}
	}
}

// The grammar of RFC 7239, section 4, for a header without empty elements.
const (
	token   = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	quoted  = `"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"`
	pair    = token + `=(?:` + token + `|` + quoted + `)`
	element = pair + `(?:;` + pair + `)*`
)

var (
	wellFormed = regexp.MustCompile(`(?s)^` + element + `(?:[ \t]*,[ \t]*` + element + `)*$`)
	elements   = regexp.MustCompile(`(?s)` + element)
	pairs      = regexp.MustCompile(`(?s)(` + token + `)=(` + token + `|` + quoted + `)`)
	quotedPair = regexp.MustCompile(`(?s)\\(.)`)
	bareAddr   = regexp.MustCompile(`^(\[[^\[\]]*\]|[^:\[\]]*)(:[0-9]{1,5}|:_[A-Za-z0-9._-]+)?$`)
)

// addrOf returns the address of an element by the grammar; ok is false if it has none.
func addrOf(element string) (addr netip.Addr, ok bool) {
	node, found := "", 0
	for _, p := range pairs.FindAllStringSubmatch(element, -1) {
		if strings.EqualFold(p[1], "for") {
			node = p[2]
			found++
		}
	}

	if found != 1 {
		return netip.Addr{}, false
	}
	if strings.HasPrefix(node, `"`) {
		node = quotedPair.ReplaceAllString(node[1:len(node)-1], "$1")
	}
	m := bareAddr.FindStringSubmatch(node)
	if m == nil {
		return netip.Addr{}, false
	}

	if port, err := strconv.Atoi(strings.TrimPrefix(m[2], ":")); err == nil && port > 65535 {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(strings.Trim(m[1], "[]"))
	return addr.Unmap().WithZone(""), err == nil && strings.HasPrefix(m[1], "[") == addr.Is6()
}

// FuzzForwarded compares the key of a well-formed header with a parser that reads the
// grammar from the front. For other headers it checks that a client cannot affect the
// element that a proxy appends.
func FuzzForwarded(f *testing.F) {
	for _, tt := range rfc7239 {
		if line := strings.Join(tt.lines, ","); len(line) < 5000 {
			f.Add(line)
		}
	}

	trusted := netip.MustParsePrefix("10.0.0.0/8")
	key := keyfunc.Forwarded(trusted)
	f.Fuzz(func(t *testing.T, header string) {
		with := func(lines ...string) string {
			r := request(proxy)
			r.Header["Forwarded"] = lines
			return keyOf(t, key, r)
		}

		got := with(header)
		checkAddrKey(t, got)

		if wellFormed.MatchString(header) {
			hops := elements.FindAllString(header, -1)
			want, known := netip.MustParseAddr("10.0.0.1"), true
			for i := len(hops) - 1; i >= 0 && trusted.Contains(want); i-- {
				addr, ok := addrOf(hops[i])
				if !ok {
					// We also read some that the RFC has not: IPv6 without brackets, zones.
					known = !strings.Contains(strings.ToLower(hops[i]), "for=")
					break
				}
				want = addr
			}

			if wantKey, _ := keyfunc.RemoteAddr(request(want.String())); known && got != wantKey {
				t.Errorf("Forwarded %q: got %q; want %q", header, got, wantKey)
			}
		}

		// What the proxies append decides, on a line of its own or not.
		for _, appended := range []struct{ elements, want string }{
			{`for=192.0.2.7`, "ip:192.0.2.7"},
			{`for="192.0.2.7:80";proto=http`, "ip:192.0.2.7"},
			{`for="[2001:db8::1]";host="a\"\\,b"`, "ip:2001:db8::/64"},
			{`for=192.0.2.7, for="10.0.0.2:_x";by="\""`, "ip:192.0.2.7"},
			{`for=unknown, for=10.0.0.2`, "ip:10.0.0.2"},
			{`for=_hidden`, "ip:10.0.0.1"},
		} {
			for _, lines := range [][]string{{header, appended.elements}, {header + "," + appended.elements}, {header + ", " + appended.elements}} {
				if got := with(lines...); got != appended.want {
					t.Errorf("Forwarded %q: got %q; want %q", lines, got, appended.want)
				}
			}
		}

		// One more trusted proxy on the way changes nothing, if there is a client to find.
		further := with(header + `,for="10.9.9.9"`)
		if addr, isV4 := strings.CutPrefix(got, "ip:"); isV4 && !strings.HasPrefix(addr, "10.") && further != got {
			t.Errorf("Forwarded %q: got %q, and %q with a trusted element more", header, got, further)
		}
	})
}
