package keyfunc_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// longestAddrKey is the longest key of an address.
const longestAddrKey = "ip:ffff:ffff:ffff:ffff::/64"

// checkAddrKey fails the test if key is not a valid key of an address function.
func checkAddrKey(t *testing.T, key string) {
	t.Helper()
	if key == "" {
		return
	}
	text, ok := strings.CutPrefix(key, "ip:")
	if !ok || len(key) > len(longestAddrKey) {
		t.Fatalf("key %q: want ip: and at most %d bytes", key, len(longestAddrKey))
	}

	addr, err := netip.ParseAddr(text)
	if network, networkErr := netip.ParsePrefix(text); networkErr == nil {
		if addr = network.Addr(); network != network.Masked() || network.Bits() != 64 || !addr.Is6() || addr.Is4In6() {
			t.Fatalf("key %q: want an IPv6 network of 64 bits", key)
		}
	} else if err != nil || !addr.Is4() {
		t.Fatalf("key %q: want an IPv4 address or an IPv6 network", key)
	}

	// What a key names is counted by that key: there is one spelling of each.
	if again, _ := keyfunc.RemoteAddr(request(addr.String())); again != key {
		t.Fatalf("key %q: its own address has the key %q", key, again)
	}
}

func FuzzRemoteAddr(f *testing.F) {
	for _, tt := range remoteAddrs {
		if len(tt.peer) < 5000 {
			f.Add(tt.peer)
		}
	}

	f.Fuzz(func(t *testing.T, peer string) {
		key := keyOf(t, keyfunc.RemoteAddr, request(peer))
		checkAddrKey(t, key)

		// If netip can parse the address, it is the same one.
		if ap, err := netip.ParseAddrPort(peer); err == nil && !(ap.Addr().Is4() && strings.HasPrefix(peer, "[")) {
			if want := keyOf(t, keyfunc.RemoteAddr, request(ap.Addr().WithZone("").String())); key != want || key == "" {
				t.Errorf("peer %q: got %q; want %q, that of its address", peer, key, want)
			}
		}
		wide := keyOf(t, keyfunc.IPv6Prefix(48, keyfunc.RemoteAddr), request(peer))
		if strings.HasSuffix(key, "/64") != strings.HasSuffix(wide, "/48") || !strings.HasSuffix(key, "/64") && wide != key {
			t.Errorf("peer %q: got %q by /64 and %q by /48", peer, key, wide)
		}
	})
}

func FuzzTrustedProxies(f *testing.F) {
	for _, tt := range forwarded {
		if line := strings.Join(tt.lines, "\n"); len(line) < 5000 {
			f.Add(tt.peer, line)
		}
	}

	trusted := netip.MustParsePrefix("10.0.0.0/8")
	proxies, hops := keyfunc.TrustedProxies(trusted), keyfunc.TrustedHops(1)
	realIP := keyfunc.AddrHeader("X-Real-IP", trusted)

	f.Fuzz(func(t *testing.T, peer, header string) {
		lines := strings.Split(header, "\n")
		with := func(lines ...string) *http.Request {
			r := request(peer)
			r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"] = lines, lines
			return r
		}

		peerKey := keyOf(t, keyfunc.RemoteAddr, request(peer))
		key := keyOf(t, proxies, with(lines...))
		for _, k := range []string{key, keyOf(t, hops, with(lines...)), keyOf(t, realIP, with(lines...))} {
			checkAddrKey(t, k)
		}

		// The header of an untrusted peer never matters.
		addr, err := netip.ParseAddr(strings.TrimPrefix(peerKey, "ip:"))
		if isTrusted := err == nil && trusted.Contains(addr); !isTrusted {
			if key != peerKey || keyOf(t, realIP, with(lines...)) != peerKey {
				t.Fatalf("peer %q is not trusted, X-Forwarded-For %q: got %q; want %q", peer, lines, key, peerKey)
			}
			return
		}

		// Lines are one list.
		if joined := keyOf(t, proxies, with(strings.Join(lines, ","))); joined != key {
			t.Errorf("X-Forwarded-For %q: got %q on several lines, %q on one", lines, key, joined)
		}

		// Once a proxy appends an untrusted client, what it sent does not matter.
		if appended := keyOf(t, proxies, with(append(lines, "192.0.2.7")...)); appended != "ip:192.0.2.7" {
			t.Errorf("X-Forwarded-For %q and 192.0.2.7: got %q; want ip:192.0.2.7", lines, appended)
		}

		// One more trusted proxy changes nothing, if there is an untrusted address.
		further := keyOf(t, proxies, with(append(lines, "10.9.9.9")...))
		if k, isV4 := strings.CutPrefix(key, "ip:"); isV4 && !strings.HasPrefix(k, "10.") && further != key {
			t.Errorf("X-Forwarded-For %q: got %q, and %q with a trusted hop more", lines, key, further)
		}
	})
}

func FuzzJWTSubject(f *testing.F) {
	valid := hs256(f, alice())
	none := sign(f, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, alice())
	for _, token := range []string{
		valid, none, "", "..", valid + "=", valid + ".", valid[:len(valid)-1], strings.ToUpper(valid), valid + "\n",
		hs256(f, alice("exp", noon.Unix())), hs256(f, alice("sub", 1)), hs256(f, alice("SUB", "victim")),
		sign(f, jwt.SigningMethodHS512, secret, alice()), sign(f, jwt.SigningMethodHS256, []byte("other"), alice()),
	} {
		f.Add(token)
	}

	opts := []jwt.ParserOption{at(noon), jwt.WithIssuer("https://a.example")}
	key := keyfunc.JWTSubject(secretKey, []string{"HS256"}, opts...)
	parser := jwt.NewParser(append(opts, jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())...)

	f.Fuzz(func(t *testing.T, token string) {
		keyOf(t, key, bearing(valid)) // caches the valid token
		got := keyOf(t, key, bearing(token))
		if again := keyOf(t, key, bearing(token)); again != got {
			t.Errorf("token %q: got %q, then %q", token, got, again)
		}

		// golang-jwt alone gives the same subject. The token ends at a space.
		want, bare := "", ""
		if fields := strings.Fields(token); len(fields) > 0 {
			bare = fields[0]
		}
		if parsed, err := parser.Parse(bare, secretKey); err == nil && len(bare) <= 16<<10 {
			_, critical := parsed.Header["crit"]
			if subject, err := parsed.Claims.GetSubject(); err == nil && subject != "" && !critical {
				want = aliceKey
			}
		}
		if got != want {
			t.Errorf("token %q: got %q; want %q", token, got, want)
		}
	})
}

// Join returns equal keys for two pairs if and only if the pairs are equal.
func FuzzJoin(f *testing.F) {
	for _, s := range [][4]string{
		{"a", "b", "a", "b"}, {"", "", "", ""}, {"a|b", "c", "a", "b|c"}, {"a", "", "", "a"}, {"a%", "7C", "a%7C", ""},
		{"a%7Cb", "", "a|b", ""}, {"|", "", "", "|"}, {"\x00", "{}", "\x00{}", ""}, {"a:1", "2", "a", "1:2"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}

	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		ab := keyOf(t, keyfunc.Join(says(a), says(b)), request(""))
		cd := keyOf(t, keyfunc.Join(says(c), says(d)), request(""))
		if same := a == c && b == d; (ab == cd) != same {
			t.Errorf("Join(%q, %q) is %q and Join(%q, %q) is %q", a, b, ab, c, d, cd)
		}
		if anonymous := a == "" && b == ""; (ab == "") != anonymous {
			t.Errorf("Join(%q, %q) is %q", a, b, ab)
		}

		// Neither do other groupings of the same answers share it.
		if a != "" || b != "" {
			for _, other := range []keyfunc.Func{
				keyfunc.Join(says(a + b)),
				keyfunc.Join(says(a), says(b), says("")),
				keyfunc.Join(says(""), says(a), says(b)),
				keyfunc.Join(keyfunc.Join(says(a), says(b))),
			} {
				if k := keyOf(t, other, request("")); k == ab {
					t.Errorf("Join(%q, %q) is %q, as is another grouping", a, b, ab)
				}
			}
		}
	})
}
