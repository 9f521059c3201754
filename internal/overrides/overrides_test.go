package overrides_test

import (
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/overrides"
)

// Subjects that no key function returns are errors that say what would be right: an override
// of one would have no effect.
func TestCheckSubject(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"sub:alice":        "",
		"anything/64":      "",
		"ip:192.0.2.7":     "",
		"ip:2001:db8::/64": "",
		"ip:192.0.2.0/24":  "",
		"ip:2001:db8::/48": "", // a network, or a key of keyfunc.IPv6Prefix

		"":                                   "want the text of a key",
		"(anonymous)":                        "stands for all requests with an empty key",
		"%#9537c5fdf120482f7d58d25e9ed583f5": "the hash of a long subject",
		strings.Repeat("x", 1001):            "of 1 to 1000 bytes",
		"ip:office":                          `want an address or a network such as "ip:192.0.2.7" or "ip:2001:db8::/64"`,
		"192.0.2.7":                          `want "ip:192.0.2.7"`,
		"2001:db8::1":                        `want one such as "ip:2001:db8::/64"`,
		"2001:db8::/64":                      `want "ip:2001:db8::/64"`,
		"2001:db8::/96":                      `want one such as "ip:2001:db8::/64"`,
		"192.0.2.0/24":                       `want "ip:192.0.2.0/24"`,
		"ip:2001:db8::1":                     `want one such as "ip:2001:db8::/64"`,
		"ip:fe80::1%eth0":                    `want one such as "ip:fe80::/64"`,
		"ip:2001:db8::/96":                   `want one such as "ip:2001:db8::/64"`,
		"ip:2001:db8::1/64":                  `want "ip:2001:db8::/64"`,
		"ip:2001:DB8:0:0::/64":               `want "ip:2001:db8::/64"`,
		"::ffff:192.0.2.7":                   `want "ip:192.0.2.7"`,
		"ip:::ffff:192.0.2.7":                `want "ip:192.0.2.7"`,
		"ip:::ffff:192.0.2.7/128":            `want "ip:192.0.2.7"`,
		"ip:192.0.2.7/32":                    `want "ip:192.0.2.7"`,
	} {
		err := overrides.CheckSubject(s)
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80q: got %v; want %q", s, err, want)
		}
	}
}
