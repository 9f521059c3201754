package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

const sample = `policies:
  - {name: client, key: client, limit: 10/hour, overrides: [{limit: 20/hour, subjects: ["ip:198.51.100.0/24"]}, {limit: none, subjects: ["ip:203.0.113.1"]}]}
  - {name: month, key: client, limit: 100/calendar month, max_debt: 50}
  - {name: rows, key: client, limit: 60/hour, max_debt: 30}
  - {name: plan, key: user, plans: {free: 6/hour, pro: 60/hour}}
`

// charge takes units of a subject, as a server would.
func charge(t *testing.T, s *redistest.Server, c gcra.Charge) {
	t.Helper()
	if _, err := gcra.Take(t.Context(), open(t, s), c); err != nil {
		t.Fatal(err)
	}
}

// open returns the store of a server of the API.
func open(t *testing.T, s *redistest.Server) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(s.URL(), redisstore.Config{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// server starts a Redis for the command.
func server(t *testing.T) *redistest.Server {
	t.Helper()
	s := redistest.Start(t)
	t.Setenv("REDIS_URL", s.URL())
	return s
}

// busy charges buckets of ip:192.0.2.7 and sub:alice.
func busy(t *testing.T, s *redistest.Server) {
	t.Helper()
	charge(t, s, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(10), Cost: 10})
	charge(t, s, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "month", Limit: gcra.Quota(100, gcra.Monthly), Cost: 120, MaxDebt: 50, Late: true})
	charge(t, s, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "rows", Limit: gcra.PerHour(60), Cost: 80, MaxDebt: 30, Late: true})
	charge(t, s, gcra.Charge{Subject: "sub:alice", Policy: "plan", Limit: gcra.PerHour(60), Cost: 3})
	charge(t, s, gcra.Charge{Subject: "ip:198.51.100.7", Policy: "client", Limit: gcra.PerHour(20), Cost: 5})
}

// peek shows what is left, what is owed, when it is full again, and which override applies.
func TestPeek(t *testing.T) {
	busy(t, server(t))
	name := file(t, sample)
	peek := func(subject string) map[string]row {
		t.Helper()
		var rows []row
		if err := json.Unmarshal([]byte(want(t, 0, []string{"peek", subject, "--policies", name, "--json"})), &rows); err != nil {
			t.Fatal(err)
		}
		all := map[string]row{}
		for _, r := range rows {
			all[r.Policy+r.Plan] = r
		}
		return all
	}

	left := func(r row) int64 {
		if r.Left == nil {
			return -1
		}
		return *r.Left
	}
	rows := peek("ip:192.0.2.7")
	if r := rows["client"]; left(r) != 0 || r.Debt != 0 || r.FullAfter < 3500 || r.FullAfter > 3600 || r.Override != "" {
		t.Errorf("client: got %+v", r)
	}
	if r := rows["month"]; left(r) != 0 || r.Debt != 20 || r.PeriodEnds == nil || !r.PeriodEnds.After(time.Now()) {
		t.Errorf("month: got %+v; want 20 owed, and when the period ends", r)
	}
	if r := rows["rows"]; left(r) != 0 || r.Debt != 20 || r.FullAfter < 4700 || r.FullAfter > 4800 {
		t.Errorf("rows: got %+v; want 20 owed, full in 80 minutes", r)
	}

	if rows := peek("sub:alice"); left(rows["plan"]) != -1 || rows["plan"].OneOf != "one of free 6/hour, pro 60/hour" || rows["plan"].FullAfter < 100 || rows["client"].FullAfter != 0 || rows["month"].FullAfter != 0 {
		t.Errorf("sub:alice: got %+v; want a row for both plans, and other buckets full", rows)
	}
	if r := peek("ip:198.51.100.7")["client"]; left(r) != 15 || r.Override != "20/hour" || r.Reason != "ip:198.51.100.0/24" {
		t.Errorf("overridden: got %+v; want the override of the network", r)
	}
	if r := peek("ip:203.0.113.1")["client"]; r.Override != "none" || r.Limit != gcra.Unlimited() {
		t.Errorf("not limited: got %+v", r)
	}

	want(t, 0, []string{"peek", "ip:192.0.2.7", "--policies", name}, "POLICY", "client", "10/hour", "in 1h", "one of free 6/hour, pro 60/hour")

	// First the policies that know the subject.
	lines := strings.Split(want(t, 0, []string{"peek", "sub:alice", "--policies", name}), "\n")
	if strings.Join(strings.Fields(lines[1]), " ") != "plan ? - - in 3m" || lines[2] != "  one of free 6/hour, pro 60/hour" || !strings.Contains(lines[3], "-     -     no bucket") {
		t.Errorf("got\n%s\nwant plan first, and no bucket in the others", strings.Join(lines, "\n"))
	}
}

// A subject that no server knows is noted, as it may be a mistake, and no more than that: one may
// ban a client before it comes.
func TestUnknownSubject(t *testing.T) {
	busy(t, server(t))
	name := file(t, sample)
	for _, args := range [][]string{
		{"peek", "user:alice", "--policies", name},
		{"peek", "user:alice", "--policies", name, "--json"},
		{"reset", "user:alice", "--policies", name},
		{"override", "set", "user:alice", "none", "--for", "1h", "--policies", name},
		{"ban", "user:bob", "--for", "1h", "--policies", name},
	} {
		code, stdout, stderr := ran(args...)
		if stderr = oneLine(stdout + stderr); code != 0 || stdout == "" || !strings.Contains(stderr, "note: no bucket of user:") || strings.Count(stderr, "note:") != 1 || !strings.Contains(stderr, " in the policies of "+name+": ") || !strings.Contains(stderr, `which "ratelimit top" shows`) {
			t.Errorf("%q: got %d and %q; want 0 and a note", args, code, stderr)
		}
	}

	// One with a bucket or an override is known, and without --policies nobody can tell.
	for _, args := range [][]string{
		{"peek", "user:alice", "--policies", name},
		{"peek", "sub:alice", "--policies", name},
		{"peek", "ip:203.0.113.1", "--policies", name},
		{"ban", "sub:alice", "--for", "1h", "--policies", name},
	} {
		if got := want(t, 0, args); strings.Contains(got, "note:") {
			t.Errorf("%q: got %s; want no note", args, got)
		}
	}
	want(t, 0, []string{"ban", "user:carol", "--for", "1h"}, "it was not checked", "that servers know the subject.")
}

// A policy in shadow denies nothing, so peek marks it.
func TestPeekOfAShadow(t *testing.T) {
	busy(t, server(t))
	name := file(t, "policies: [{name: client, key: client, limit: 10/hour, shadow: true}]")
	want(t, 0, []string{"peek", "ip:192.0.2.7", "--policies", name}, "\nclient (shadow)  10/hour  0 ")
	want(t, 0, []string{"peek", "ip:192.0.2.7", "--policies", name, "--json"}, `"shadow": true`)
}

// A mistake says what would be right.
func TestPeekMistakes(t *testing.T) {
	name := file(t, sample)
	url := redistest.Start(t).URL()
	t.Setenv("REDIS_URL", "")

	for _, tt := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"peek", "ip:192.0.2.7", "--redis", url}, "no server with the prefix rl: has said its policies for an hour; want --policies, a file"},
		{2, []string{"peek", "ip:192.0.2.7", "--policies", name}, "--redis is missing; want a URL such as redis://localhost:6379/0, or set REDIS_URL"},
		{2, []string{"peek", "ip:192.0.2.7", "--policies", name, "--redis", "localhost:6379"}, "redis URL: "},
		{2, []string{"peek", "192.0.2.7", "--policies", name}, `want "ip:192.0.2.7"`},
		{2, []string{"peek", "ip:2001:db8::1", "--policies", name}, `IPv6 clients count by their network, of 64 bits or less; want one such as "ip:2001:db8::/64"`},
		{2, []string{"peek", "", "--policies", name}, "subject is \"\""},
		{1, []string{"peek", "ip:192.0.2.7", "--policies", file(t, "policies: []"), "--redis", url}, "policies is empty"},
		{1, []string{"peek", "ip:192.0.2.7", "--policies", name, "--redis", "redis://127.0.0.1:1"}, "connection refused"},
	} {
		want(t, tt.code, tt.args, tt.want)
	}
}

// reset fills the buckets that it names, and asks on a terminal.
func TestReset(t *testing.T) {
	s := server(t)
	busy(t, s)
	name := file(t, sample)
	left := func(c gcra.Charge) int64 {
		t.Helper()
		r, err := gcra.Peek(t.Context(), open(t, s), c)
		if err != nil {
			t.Fatal(err)
		}
		return r.Remaining
	}

	client := gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(10)}
	month := gcra.Charge{Subject: "ip:192.0.2.7", Policy: "month", Limit: gcra.Quota(100, gcra.Monthly), MaxDebt: 50}
	rows := gcra.Charge{Subject: "ip:192.0.2.7", Policy: "rows", Limit: gcra.PerHour(60), MaxDebt: 30}
	args := []string{"reset", "ip:192.0.2.7", "--policies", name}

	want(t, 0, append(args, "--policy", "client"), "ip:192.0.2.7 is full in: client\n")
	if left(client) != 10 || left(month) != 0 || left(rows) != 0 {
		t.Error("client is not full, or others are")
	}

	want(t, 2, append(args, "--policy", "clint"), `--policy is "clint"; want client, month, rows or plan`)
	want(t, 0, args, "ip:192.0.2.7 is full in: client, month, rows, plan\n")
	if left(month) != 100 || left(rows) != 60 {
		t.Errorf("got %d and %d left; want 100 and 60", left(month), left(rows))
	}
}

// Where an override sets no limit there is no bucket to fill, and a ban outlives a reset.
func TestResetUnderOverride(t *testing.T) {
	redis := server(t)
	busy(t, redis)
	name := file(t, sample)
	reset := func(args ...string) string {
		t.Helper()
		return want(t, 0, append([]string{"reset", "ip:192.0.2.7", "--policies", name}, args...))
	}

	want(t, 0, []string{"override", "set", "ip:192.0.2.7", "none", "--for", "1h", "--policy", "client", "--policies", name})
	if got := reset("--policy", "client"); !strings.HasSuffix(got, "\nnot reset, as an override sets no limit there: client\n") {
		t.Errorf("got\n%s\nwant that nothing was reset", got)
	}
	if got := reset(); !strings.HasSuffix(got, "\nnot reset, as an override sets no limit there: client\nip:192.0.2.7 is full in: month, rows, plan\n") {
		t.Errorf("got\n%s\nwant that client was not reset", got)
	}

	want(t, 0, []string{"override", "unset", "ip:192.0.2.7"})
	want(t, 0, []string{"ban", "ip:192.0.2.7", "--for", "1h", "--policy", "client", "--policies", name})
	if got := reset(); !strings.HasSuffix(got, "\nip:192.0.2.7 is full in: client, month, rows, plan\nbut it is banned in: client\n") {
		t.Errorf("got\n%s\nwant the ban", got)
	}

	want(t, 0, []string{"override", "unset", "ip:192.0.2.7"})
	name = file(t, "policies:\n  - {name: client, key: client, plans: {free: 6/hour, staff: none}}\n")
	charge(t, redis, gcra.Charge{Subject: "ip:192.0.2.7", Policy: "client", Limit: gcra.PerHour(6), Cost: 1})
	if got := reset(); strings.Contains(got, "override sets") {
		t.Errorf("got\n%s\nwant no word of overrides, as a plan has no limit", got)
	}

	want(t, 0, []string{"ban", "ip:192.0.2.7", "--for", "1h"})
	name = file(t, "policies:\n  - {name: client, key: client, limit: 6/hour}\n  - {name: trial, key: client, limit: 6/hour, shadow: true}\n")
	if got := reset(); !strings.HasSuffix(got, "\nbut it is banned in: client\n") {
		t.Errorf("got\n%s\nwant a ban in client alone, as a shadow policy bans nobody", got)
	}
}

// What is wrong with Redis, the command says in the words of Store.Ping.
func TestRedisProblems(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t)
	certificates := redistest.NewCertificates(t)
	overTLS := redistest.StartTLS(t, certificates)
	locked := redistest.Start(t, "--requirepass", "hunter2")
	name := file(t, sample)

	list, ban := []string{"override", "list"}, []string{"ban", "ip:192.0.2.7", "--for", "1h"}
	for _, tt := range []struct {
		args      []string
		url, want string
	}{
		{[]string{"top"}, "rediss://" + plain.Addr, "try redis:// in place of rediss://"},
		{list, "redis://" + overTLS.Addr, "try rediss:// in place of redis://"},
		{[]string{"peek", "ip:192.0.2.7", "--policies", name}, "rediss://" + overTLS.Addr + "?dial_timeout=20s", "name the file of its CA in SSL_CERT_FILE"}, // a busy machine
		{ban, "redis://" + locked.Addr, "want redis://user:password@host:port"},
		{list, "redis://127.0.0.1:1", "check that Redis runs there"},
	} {
		store, err := redisstore.Open(tt.url, redisstore.Config{Timeout: patience, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		sentence := "redis at " + u.Host + " "
		ctx, cancel := context.WithTimeout(t.Context(), busyMachine)
		t.Cleanup(cancel)
		if err := store.Ping(ctx); err == nil || !strings.Contains(err.Error(), sentence) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Ping: got %v; want %s and %s", err, sentence, tt.want)
		}

		want(t, 1, append(tt.args, "--redis", tt.url), ": "+sentence, tt.want)
	}

	replica := redistest.Start(t, "--replicaof", "127.0.0.1", strings.TrimPrefix(plain.Addr, "127.0.0.1:"))
	want(t, 1, append(ban, "--redis", replica.URL()), "connect to the master")
}
