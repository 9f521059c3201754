package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// hostile are names that a client may choose. All differ.
var hostile = []string{
	"", " ", "  ", "a", "A", "a ", " a", "b", "a:b", "a:", ":a", "a:b:c", "b:c",
	"%", "%%", "%#", "%25", "%20", "%2520", "%7B", "{", "}", "{}", "{a}", "{{a}}", "}{", "a}:b", "a}:{b", "{a}:b",
	"\x00", "\x00\x00", "a\x00", "\r\n", "\n", "\r\nSET x 1\r\n", "$3\r\nfoo\r\n", "\x7f", "\x1b[2J",
	"*", "?", "[a]", "^", `"`, `\`, `\x00`, "'", "`", "/", "//", "../a", "a|b", "a,b", "a=b", "nil", "false",
	"é", "e\u0301", "\u200b", "日本", "\xff", "\xff\xfe", "\xc3\x28", "\ufeff",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 1<<20),
	strings.Repeat("a", 1<<20) + "b", "b" + strings.Repeat("a", 1<<20),
	strings.Repeat("{", 22), strings.Repeat("{", 64), strings.Repeat("}", 64), strings.Repeat("\x00", 64), strings.Repeat("%7B", 22),
}

// Two different pairs of subject and policy are two buckets, for any bytes, also if
// the concatenations are equal.
func hostileNames(t *testing.T, b Backend) {
	type bucket struct{ subject, policy string }
	var buckets []bucket
	for _, name := range hostile {
		buckets = append(buckets, bucket{name, "policy"}, bucket{"subject", name})
	}

	for _, s := range []string{"", "a", "b", "a:b", "{a}", "a}:b", "%"} {
		for _, p := range []string{"", "c", "b:c", "b}:c", "{b", ":", "%"} {
			buckets = append(buckets, bucket{s, p})
		}
	}

	const n = 1000
	for i, name := range buckets {
		charge := gcra.Charge{Subject: name.subject, Policy: name.policy, Limit: noRefill(n), Cost: int64(i + 1)}
		if _, err := gcra.Take(t.Context(), b.Store, charge); err != nil {
			t.Fatalf("Take from %.40q, %.40q: %v", name.subject, name.policy, err)
		}
	}

	for i, name := range buckets {
		if got, want := spent(t, b, name.subject, name.policy, n), int64(i+1); got != want {
			t.Errorf("%.40q (%d bytes), %.40q (%d bytes): got %d spent; want %d",
				name.subject, len(name.subject), name.policy, len(name.policy), got, want)
		}
	}
}

// An admission may have many charges, each with its own limit.
func manyCharges(t *testing.T, b Backend) {
	const n = 200
	charges := make([]gcra.Charge, n)
	for i := range charges {
		charges[i] = gcra.Charge{Subject: "s", Policy: fmt.Sprint("p", i), Limit: noRefill(int64(n + i)), Cost: int64(i + 1)}
	}
	if _, err := b.Store.Take(t.Context(), charges); err != nil {
		t.Fatal(err)
	}

	for i, c := range charges {
		if want := c.Limit.Burst - c.Cost; !c.Result.Allowed || c.Result.Remaining != want {
			t.Errorf("charge %d of %d: got %+v; want %d remaining", i, n, c.Result, want)
		}
	}

	charges[n-1].Cost = 2 * n // more than remains
	if _, err := b.Store.Take(t.Context(), charges); err != nil {
		t.Fatal(err)
	}

	for i, c := range charges {
		if got := spent(t, b, c.Subject, c.Policy, c.Limit.Burst); got != int64(i+1) {
			t.Errorf("charge %d of %d, denied the second time: got %d spent; want %d", i, n, got, i+1)
		}
	}
}
