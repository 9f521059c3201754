package rediskit

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func keyOf(subject, policy string) string { return string(AppendKey(nil, "rl:", subject, policy)) }

func TestKey(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, tt := range []struct{ subject, policy, want string }{
		{"ip:192.0.2.7", "login", "rl:{ip:192.0.2.7}:login"},
		{"ip:2001:db8::/64", "burst", "rl:{ip:2001:db8::/64}:burst"},
		{"", "", "rl:{%}:%"},
		{"%", "100%", "rl:{%25}:100%25"},
		{"{a}", "}{", "rl:{%7Ba%7D}:%7D%7B"},
		{"a b\r\n\x00\x7f", "p", "rl:{a%20b%0D%0A%00%7F}:p"},
		{"é\xff", "日", "rl:{é\xff}:日"},
		{strings.Repeat("x", 64), "p", "rl:{" + strings.Repeat("x", 64) + "}:p"},
		// The first 128 bits of the SHA-256 of 65 times x.
		{long, "p", "rl:{%#9537c5fdf120482f7d58d25e9ed583f5}:p"},
		{"s", long, "rl:{s}:%#9537c5fdf120482f7d58d25e9ed583f5"},
		// Too long only when escaped: 22 times {.
		{strings.Repeat("{", 21) + "a", "p", "rl:{" + strings.Repeat("%7B", 21) + "a}:p"},
		{strings.Repeat("{", 22), "p", "rl:{%#30b2565bdac526ef06ab46cbdf3dec2a}:p"},
	} {
		if got := keyOf(tt.subject, tt.policy); got != tt.want {
			t.Errorf("%q, %q:\ngot  %q\nwant %q", tt.subject, tt.policy, got, tt.want)
		}
	}
}

// checkKey returns an error if the key of a subject and a policy is malformed.
func checkKey(key, subject, policy string) error {
	switch {
	case len(key) > len("rl:{}:")+2*maxKeyPart:
		return fmt.Errorf("the key has %d bytes", len(key))
	case strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1:
		return fmt.Errorf("it has braces beside those of the hash tag")
	case hashTag(key) == "":
		return fmt.Errorf("its hash tag is empty")
	case hashTag(key) != hashTag(keyOf(subject, policy+"another")):
		return fmt.Errorf("its hash tag depends on the policy")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("it contains spaces or control characters")
	case utf8.ValidString(subject) && utf8.ValidString(policy) && !utf8.ValidString(key):
		return fmt.Errorf("it is not valid UTF-8")
	}
	return nil
}

// hashTag returns the part of a key that a cluster hashes, by the cluster specification: the text
// between the first { and the next }, unless it is empty.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// Two keys are equal if and only if subjects and policies are equal.
func FuzzKey(f *testing.F) {
	long := strings.Repeat("a", 1000)
	for _, s := range [][4]string{
		{"a", "b", "a", "b"},
		{"a:b", "c", "a", "b:c"},
		{"a}:b", "c", "a", "b}:c"},
		{"", "", "%", "%"},
		{"{", "", "%7B", ""},
		{"%", "p", "%25", "p"},
		{long, "p", long + "a", "p"},
		{"%#9537c5fdf120482f7d58d25e9ed583f5", "p", strings.Repeat("x", 65), "p"},
		{strings.Repeat("{", 22), "p", strings.Repeat("%7B", 22), "p"},
		{"a\x00", "p", "a", "\x00p"},
		{"s", long, "s", long + " "},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}

	f.Fuzz(func(t *testing.T, subject, policy, subject2, policy2 string) {
		a, b := keyOf(subject, policy), keyOf(subject2, policy2)
		if same := subject == subject2 && policy == policy2; (a == b) != same {
			t.Errorf("%q, %q is %q;\n%q, %q is %q", subject, policy, a, subject2, policy2, b)
		}
		if same := subject == subject2; (hashTag(a) == hashTag(b)) != same {
			t.Errorf("the hash tag of %q is %q;\nof %q it is %q", subject, hashTag(a), subject2, hashTag(b))
		}
		if err := checkKey(a, subject, policy); err != nil {
			t.Errorf("the key of %q, %q is %q: %v", subject, policy, a, err)
		}
	})
}

// A hash tag inside a subject does not choose the slot.
func TestSlotsSpread(t *testing.T) {
	slots := make(map[uint16]int)
	const n = 10_000
	for i := range n {
		slots[slotOf(keyOf(fmt.Sprintf("{same}%d", i), "p"))]++
	}
	// 10,000 random keys are in 7,490 of 16384 slots on average.
	if len(slots) < 7000 {
		t.Errorf("%d subjects with a common tag are in %d slots; want about 7490", n, len(slots))
	}
	if a, b := slotOf(keyOf("u", "burst")), slotOf(keyOf("u", "daily")); a != b {
		t.Errorf("two policies of one subject are in slots %d and %d; want one", a, b)
	}
}

// slotOf returns the CRC16 (XMODEM) of the hash tag modulo 16384, by the cluster specification.
func slotOf(key string) uint16 {
	var crc uint16
	for _, c := range []byte(hashTag(key)) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func TestSlotOf(t *testing.T) {
	if got := slotOf("123456789"); got != 0x31c3 { // the check value of the specification
		t.Errorf("got %#x; want 0x31c3", got)
	}
}

// A key says whose bucket it is. Long parts stay hashed, and other keys are no buckets.
func TestParseKey(t *testing.T) {
	long := strings.Repeat("x", 100)
	for _, subject := range []string{"", "ip:192.0.2.7", "sub:https://a|b", "a b%{}~\x7f\n", "%#no", "é", "+"} {
		for _, policy := range []string{"client", "a b", "%"} {
			for _, calendar := range []string{"", "month15.Europe/Berlin"} {
				key := string(AppendKey(nil, "rl:", subject, policy))
				if calendar != "" {
					key += "~" + calendar
				}
				s, p, c, ok := ParseKey("rl:", key)
				if s != subject || p != policy || c != calendar || !ok {
					t.Errorf("%q: got %q, %q, %q, %t; want %q, %q, %q", key, s, p, c, ok, subject, policy, calendar)
				}
			}
		}
	}

	if s, _, _, ok := ParseKey("rl:", string(AppendKey(nil, "rl:", long, "p"))); !ok || !strings.HasPrefix(s, "%#") || len(s) != 34 {
		t.Errorf("got %q, %t; want a hash", s, ok)
	}
	for _, key := range []string{"", "rl:", "rl:{instances}", "rl:{ping}", "rl:{~testabc}", "rl:{a}:p~reported.1x", "rl:{a}:p~month~reported.1x", "sl:{a}:p", "rl:{}:p", "rl:{a}:", "rl:{%zz}:p"} {
		if s, p, c, ok := ParseKey("rl:", key); ok {
			t.Errorf("%q: got %q, %q, %q; want that it is no bucket", key, s, p, c)
		}
	}
}
