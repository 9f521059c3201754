package main

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/published"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// say makes servers say that they have these policies: "<seconds ago> <JSON>", or more JSON of other limiters after "; ".
func say(t *testing.T, s *redistest.Server, servers ...string) {
	t.Helper()
	text := "1\n"
	for i, server := range servers {
		ago, policies, _ := strings.Cut(server, " ")
		var seconds int64
		if _, err := fmt.Sscan(ago, &seconds); err != nil {
			t.Fatal(err)
		}
		hashes := ""
		for limiter := range strings.SplitSeq(policies, "; ") {
			hash := crc32.ChecksumIEEE([]byte(limiter))
			hashes += fmt.Sprintf(",%08x", hash)
			text += fmt.Sprintf("limiter %08x %s\n", hash, limiter)
		}
		text += fmt.Sprintf("server s%d %d %s\n", i, time.Now().Unix()-seconds, hashes[1:])
	}
	if err := s.Client().Set(t.Context(), "rl:"+published.Suffix, text, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
}

// Without a file the command knows what servers say of their policies, for an hour and while they
// disagree, and names what it does not know.
func TestServersSay(t *testing.T) {
	s := server(t)
	charge(t, s, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(100), Cost: 40})
	charge(t, s, gcra.Charge{Subject: "sub:alice", Policy: "rate", Limit: gcra.PerHour(30), Cost: 10})
	charge(t, s, gcra.Charge{Subject: "sub:alice", Policy: "month", Limit: gcra.Quota(1000, gcra.Monthly), Cost: 7})
	charge(t, s, gcra.Charge{Subject: "sub:alice", Policy: "func", Limit: gcra.PerHour(60), Cost: 30})

	const plans = `{"name":"rate","plans":{"free":"30/hour","pro":"1000/hour"},"limit":"30/hour","kinds":["sub"],"follows":true},` +
		`{"name":"month","plans":{"free":"50/calendar day","pro":"1000/calendar month"},"kinds":["sub"],"follows":true},{"name":"func","function":true,"follows":true}`
	client := func(n int) string {
		return fmt.Sprintf(`[{"name":"client","limit":"%d/hour","kinds":["ip"],"follows":true},%s]`, n, plans)
	}

	say(t, s, "3620 "+client(100)) // an hour after the last request, which comes soon after
	peek := func(subject string) []string { return []string{"peek", subject} }
	want(t, 0, peek("ip:192.0.2.7"), "policies as 1 server said 1h", "client 100/hour 60")
	want(t, 0, peek("sub:alice"), "rate ? - - in ", "one of free 30/hour, pro 1000/hour",
		"month (plan pro) 1000/calendar month 993 0 in ", "func ? - - in ", "limit by function")
	want(t, 0, []string{"top"}, "ip:192.0.2.7 40 100/hour in ", "one of free 30/hour, pro 1000/hour", "sub:alice 7 1000/calendar month")
	want(t, 2, []string{"override", "set", "sub:alice", "900/calendar month", "--policy", "month", "--for", "1h"}, "lower than the limit of plan pro, 1000/calendar month")
	want(t, 2, []string{"override", "set", "sub:alice", "9/hour", "--policy", "func", "--for", "1h"}, "the present limit is not known")
	want(t, 0, []string{"override", "set", "sub:alice", "2000/calendar month", "--policy", "month", "--for", "1h"})
	want(t, 0, []string{"override", "set", "ip:192.0.2.7", "200/hour", "--policy", "client", "--for", "1h"})
	want(t, 0, []string{"override", "rm", "ip:192.0.2.7"})
	want(t, 0, []string{"ban", "ip:192.0.2.0/24", "--for", "1h"}, "Policies that have counted an address so far: client.", "Not known yet: func.")
	want(t, 0, []string{"reset", "sub:alice"}, "sub:alice is full in: func, month, rate\n")
	want(t, 0, peek("sub:alice"), "rate ? - - no bucket", "func ? - - no bucket")

	// Half of a roll-out. A server that has stopped counts no more, one without a word does.
	s.Client().Set(t.Context(), "rl:{instances}", fmt.Sprintf("s0=%[1]d;old=%[1]d", time.Now().Add(time.Minute).UnixMilli()), 0)
	say(t, s, "1 "+client(100), "2 "+client(100), "3 "+client(50), "90 "+client(10))
	for _, args := range [][]string{peek("ip:192.0.2.7"), {"top"}, {"reset", "ip:192.0.2.7"}} {
		want(t, 0, args, "policies as 3 servers said ", "servers disagree about client: 100/hour on 2 servers, 50/hour on 1 server",
			"1 server without a word about policies", " 100/hour on 2 servers, 50/hour on 1 server")
	}
	want(t, 2, []string{"override", "set", "ip:192.0.2.7", "70/hour", "--policy", "client", "--for", "1h"}, "lower than the limit on 2 servers, 100/hour")
	say(t, s, "1 "+client(100), "2 "+client(50))
	want(t, 0, peek("ip:192.0.2.7"), "client ? - - ", "100/hour on 1 server, 50/hour on 1 other server")

	s.Client().Del(t.Context(), "rl:{instances}")

	// Two limiters of one server, of which the second does not follow overrides.
	say(t, s, "1 "+client(100)+`; [{"name":"client","limit":"50/hour"},{"name":"deaf","limit":"5/hour","kinds":["ip"]}]`)
	if _, stdout, stderr := ran("ban", "ip:192.0.2.9", "--for", "1h"); !strings.Contains(stderr, "it changes nothing in deaf: no server") {
		t.Errorf("got %s and %s; want a warning about deaf alone", stdout, stderr)
	}
	want(t, 0, peek("ip:192.0.2.9"), "limiters of a server disagree about client: 100/hour on one limiter of 1 server, 50/hour on one other limiter of 1 server",
		"deaf 5/hour - - no bucket override: banned (changes nothing, as no server follows overrides here; ")

	// A policy that is left out may count by address, so only a server that says all can say that none does.
	const user = `0 [{"name":"user","limit":"5/hour","kinds":["sub"]`
	for said, warns := range map[string]bool{user + `},{"name":"big","left_out":true}]`: false, user + `,"follows":true}]`: true, user + "}]": true} {
		say(t, s, said)
		code, stdout, stderr := ran("ban", "ip:192.0.2.7", "--for", "1h")
		if code != 0 || strings.Contains(oneLine(stdout), "big: left out") == warns || strings.Contains(stderr, "warning: servers have counted nobody by address so far") != warns ||
			strings.Contains(stderr, "no server follows overrides") != (said != user+`,"follows":true}]`) {
			t.Errorf("%s: got %d, %s and %s; want a warning that nobody is counted by address: %v; one that user follows nothing unless it does", said, code, stdout, stderr, warns)
		}
	}

	// What anybody may have written.
	s.Client().FlushAll(t.Context())
	charge(t, s, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(100), Cost: 40})
	for _, value := range []string{"", "x", "9\n", strings.Repeat("x", 100_000), "1" + strings.Repeat("\n", 30_000), "1\n\n\nlimiter\nserver a\n", "1\nserver a 1 b\n",
		"1\nserver a 99999999999999999 b\nlimiter b [{\"name\":\"\\u001b[2J\"}]\n"} {
		s.Client().Set(t.Context(), "rl:"+published.Suffix, value, 0)
		if got := want(t, 0, []string{"top"}, "No server says what its policies are"); strings.Contains(got, "\x1b") || len(got) > 1000 {
			t.Errorf("%.30q: got %.2000q", value, got)
		}
	}
}
