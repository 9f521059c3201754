package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

const busyMachine = 30 * time.Second

// api returns a server of an API with the policies of a file and the overrides of the fleet.
func api(ctx context.Context, url, policies string) (http.Handler, error) {
	store, err := redisstore.Open(url, redisstore.Config{Timeout: patience})
	if err != nil {
		return nil, err
	}

	found, err := fleet.New(ctx, fleet.Config{Store: store})
	if err != nil {
		return nil, err
	}

	funcs := policyfile.Funcs{Keys: map[string]func(*http.Request) (string, error){"client": keyfunc.RemoteAddr}}
	list, err := policyfile.Load(policies, funcs)
	if err != nil {
		return nil, err
	}

	limit := ratelimit.New(ratelimit.Config{Store: store, Override: found.Find, BanStatus: http.StatusForbidden}, list...)
	return limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {})), nil
}

// get sends a request of a client, and returns the status and Retry-After.
func get(h http.Handler, addr string) string {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr + ":4711"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprintf("%d%t", w.Code, w.Header().Get("Retry-After") != "")
}

// serve answers requests of the addresses on the standard input, until that ends.
func serve(h http.Handler, err error) {
	if err != nil {
		panic(err)
	}
	var addr string
	for {
		if _, err := fmt.Scan(&addr); err != nil {
			os.Exit(0)
		}
		fmt.Println(get(h, addr))
	}
}

// process starts a process that serves, with these lines in its environment, and returns it and a
// function that sends it a request of an address.
func process(t *testing.T, env ...string) (_ *exec.Cmd, answer func(addr string) string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = t.Output()

	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })

	return cmd, func(addr string) (got string) {
		t.Helper()
		fmt.Fprintln(stdin, addr)
		if _, err := fmt.Fscan(stdout, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
}

const apiPolicies = "policies: [{name: client, key: client, limit: 5/hour}]"

// An operator finds the most limited subject of three servers, sees why, lets it through for
// an hour, and takes that back; then bans it.
func TestOperator(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	command := func(args []string, parts ...string) {
		t.Helper()
		want(t, 0, append(args, "--redis", s.URL()), parts...)
	}

	policies := file(t, apiPolicies)
	var servers []http.Handler
	for range 3 {
		h, err := api(t.Context(), s.URL(), policies)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, h)
	}

	everywhere := func(want string) {
		t.Helper()
		for i, h := range servers {
			redistest.Eventually(t, busyMachine, fmt.Sprintf("server %d to answer %s", i, want), func() bool { return get(h, "192.0.2.7") == want })
		}
	}

	get(servers[0], "192.0.2.8")
	for i := range 7 {
		get(servers[i%3], "192.0.2.7")
	}
	everywhere("429true")

	if got := top(t, "--policies", policies, "--redis", s.URL())["client"].Subjects[0]; got.Subject != "ip:192.0.2.7" || got.Used != 5 {
		t.Errorf("got %+v; want ip:192.0.2.7", got)
	}
	command([]string{"peek", "ip:192.0.2.7", "--policies", policies}, "client  5/hour  0 ")
	command([]string{"override", "set", "ip:192.0.2.7", "none", "--for", "1h", "--why", "import"}, "set: ip:192.0.2.7: no limit in all policies, ends in 1h (20")
	everywhere("200false")
	command([]string{"peek", "ip:192.0.2.7", "--policies", policies}, "none (import, by ", "ends in ")
	command([]string{"override", "list"}, "ip:192.0.2.7", "all policies", "none", "import")

	command([]string{"override", "unset", "ip:192.0.2.7"}, "taken back: ip:192.0.2.7: no limit in all policies")
	everywhere("429true")

	command([]string{"ban", "ip:192.0.2.7", "--for", "1h"}, "set: ip:192.0.2.7: banned in all policies")
	everywhere("403true")
	command([]string{"peek", "ip:192.0.2.7", "--policies", policies}, "banned (by ")
	command([]string{"override", "list"}, "banned")
	command([]string{"override", "set", "ip:192.0.2.7", "none", "--for", "2h", "--policy", "client", "--force"},
		"set: ip:192.0.2.7: no limit in client", "But this wins over it, ends in ", "ip:192.0.2.7: banned in all policies")
	command([]string{"peek", "ip:192.0.2.7", "--policies", policies}, "banned (by ")

	// The network around it, without one customer.
	command([]string{"override", "unset", "ip:192.0.2.7"}, "taken back")
	command([]string{"override", "set", "ip:192.0.2.9", "default", "--for", "1h"}, "the limits without overrides in all policies")
	command([]string{"ban", "ip:192.0.2.0/24", "--for", "1h"}, "But this wins over it, ends in ", "ip:192.0.2.9: the limits")
	everywhere("403true")
	if got := get(servers[0], "192.0.2.9"); got != "200false" {
		t.Errorf("the customer: got %s; want 200", got)
	}
	command([]string{"override", "set", "ip:192.0.2.7", "none", "--for", "1h", "--policy", "client"}, "In other policies this holds: ip:192.0.2.0/24: banned")
	command([]string{"peek", "ip:192.0.2.8", "--policies", policies}, "banned (by ")
	command([]string{"peek", "ip:192.0.2.9", "--policies", policies}, "default (by ")
}

// A wrong override is not set, and the message says what would be right.
func TestOverrideMistakes(t *testing.T) {
	s := server(t)
	policies := file(t, `policies:
  - {name: client, key: client, limit: 10/hour, overrides: [{limit: 20/hour, subjects: ["ip:192.0.2.9"]}]}
  - {name: plan, key: user, plans: {free: 6/hour, pro: 60/hour}}
  - {name: debt, key: user, limit: 1/day burst 300, max_debt: 50}
`)
	set := func(args ...string) []string { return append([]string{"override", "set"}, args...) }
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"override"}, "want set, unset, list or import"},
		{set("ip:192.0.2.7", "none"), "--for is missing; want how long"},
		{set("ip:192.0.2.7", "none", "--for", "10000h"), "want at most 366 days"},
		{set("ip:192.0.2.7", "lots", "--for", "1h"), `limit is "lots"; want one such as 1000/minute, or none`},
		{set("ip:192.0.2.7", "banned", "--for", "1h"), "want ratelimit ban"},
		{set("192.0.2.7", "none", "--for", "1h"), `want "ip:192.0.2.7"`},
		{set("ip:192.0.0.0/15", "none", "--for", "1h"), "larger than a /16; want --force"},
		{[]string{"ban", "ip:2001::/31", "--for", "1h"}, "larger than a /32; want --force"},
		{[]string{"peek", "ip:192.0.2.0/24", "--policies", policies}, "want an address in it"},
		{set("ip:2001:db8::1/64", "none", "--for", "1h"), `want "ip:2001:db8::/64"`},
		{set("ip:192.0.2.7", "100/hour", "--for", "1h"), "--policy is missing"},
		{set("ip:192.0.2.7", "100/hour", "--for", "1h", "--policy", "client"), "the present limit is not known; want --policies"},
		{set("ip:192.0.2.7", "100/hour", "--for", "1h", "--policy", "clint", "--policies", policies), `--policy is "clint"; want client, plan or debt`},
		{set("ip:192.0.2.7", "5/hour", "--for", "1h", "--policy", "client", "--policies", policies), "5/hour is lower than the present limit, 10/hour; want --force"},
		{set("ip:192.0.2.9", "15/hour", "--for", "1h", "--policy", "client", "--policies", policies), "lower than the present limit, 20/hour"},
		{set("sub:alice", "30/hour", "--for", "1h", "--policy", "plan", "--policies", policies), "30/hour is lower than the limit of plan pro, 60/hour"},
		{set("sub:alice", "1/day burst 350", "--for", "1h", "--policy", "debt", "--policies", policies, "--force"), "MaxDebt is 50; want 0 to 16"},
		{[]string{"ban", "ip:192.0.2.7"}, "--for is missing"},
	} {
		want(t, 2, tt.args, tt.want)
	}

	if n := s.Client().Exists(t.Context(), overrides.Key("rl:")).Val(); n != 0 {
		t.Error("something was set")
	}

	want(t, 0, set("ip:192.0.2.7", "5/hour", "--for", "1h", "--policy", "client", "--force"), "limit 5/hour in client", "not checked that there is such a policy")
	want(t, 0, set("ip:192.0.2.7", "7/hour", "--for", "1h", "--policy", "client"))
	want(t, 2, set("ip:192.0.2.7", "6/hour", "--for", "1h", "--policy", "client"), "lower than the present override, 7/hour")

	want(t, 0, set("ip:192.0.2.6", "none", "--for", "1h"))
	want(t, 2, set("ip:192.0.2.6", "1000/hour", "--for", "1h", "--policy", "client", "--policies", policies), "lower than the present override, none")
	want(t, 0, []string{"override", "unset", "ip:192.0.2.6"})

	// Without --policies nobody can tell that the limit has no room for the policy's max_debt.
	want(t, 0, set("sub:alice", "1/day burst 350", "--for", "1h", "--policy", "debt", "--force"))
	want(t, 0, []string{"peek", "sub:alice", "--policies", policies}, "not valid in this policy, which follows its on_failure: ", "MaxDebt is 50; want 0 to 16", "no bucket")
	want(t, 0, []string{"override", "unset", "sub:alice"})

	want(t, 0, set("sub:carol", "100/calendar", "month", "--for", "7d", "--policy", "month", "--force"), "limit 100/calendar month in month, ends in 7d (")
	want(t, 1, []string{"unban", "sub:carol"}, "sub:carol has no ban")
	want(t, 0, []string{"override", "rm", "sub:carol"}, "taken back")
	want(t, 0, []string{"ban", "sub:carol", "--for", "2w"})
	want(t, 0, []string{"unban", "sub:carol"}, "taken back: sub:carol: banned")

	want(t, 1, []string{"override", "unset", "ip:192.0.2.8"}, "ip:192.0.2.8 has no override")
	want(t, 1, []string{"override", "unset", "ip:192.0.2.7", "--policy", "plan"}, "has no override")
	want(t, 0, []string{"override", "unset", "ip:192.0.2.7", "--policy", "client"}, "taken back")
	want(t, 0, []string{"override", "list"}, "no overrides")
}

// What list prints as JSON, import sets: all of it or nothing. What has ended is removed.
func TestImport(t *testing.T) {
	s := server(t)
	list := func() (text string, entries []overrides.Entry) {
		t.Helper()
		text = want(t, 0, []string{"override", "list", "--json"})
		if err := json.Unmarshal([]byte(text), &entries); err != nil {
			t.Fatal(err)
		}
		return text, entries
	}

	name := filepath.Join(t.TempDir(), "overrides.json")
	imports := func(entries []overrides.Entry, code int, parts ...string) {
		t.Helper()
		text, err := json.Marshal(entries)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		want(t, code, []string{"override", "import", name}, parts...)
	}

	if text, _ := list(); text != "[]\n" {
		t.Errorf("without overrides: got %s; want an empty list", text)
	}
	want(t, 0, []string{"ban", "ip:192.0.2.7", "--for", "1h", "--why", "a \"b\" <c>"})
	want(t, 0, []string{"override", "set", "sub:alice", "none", "--for", "1h", "--policy", "p"})
	want(t, 0, []string{"ban", "short", "--for", "1ms"})
	before, entries := list()
	if len(entries) != 2 {
		t.Errorf("got %s; want 2 entries", before)
	}

	s.Client().FlushAll(t.Context())
	far := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	imports(append(entries, overrides.Entry{Subject: "x", Limit: "lots", Until: time.Now()}), 1, `entry 3: limit is "lots"`)
	imports([]overrides.Entry{{Subject: "x", Limit: "banned", Until: far, At: far}, {Subject: "x", Limit: "banned", Until: far}}, 1,
		"entry 1: at is 9999-01-01T00:00:00Z, which lies ahead", "entry 2: until is 9999-01-01T00:00:00Z; want at most 366 days from now")
	want(t, 0, []string{"override", "list"}, "no overrides")
	imports(entries, 0, "2 set")
	if after, _ := list(); after != before {
		t.Errorf("got\n%swant\n%s", after, before)
	}
	want(t, 1, []string{"override", "import", "/dev/zero"}, "want what list --json prints, in 16777216 bytes at most")
	want(t, 1, []string{"override", "import", file(t, "policies: []")}, "policies.yaml: ", "want what list --json prints")

	s.Client().HSet(t.Context(), overrides.Key("rl:"), "{broken}:p", "?")
	want(t, 1, []string{"override", "list"}, "sub:alice", `broken, and skipped by servers: "{broken}:p" is no entry`)
	want(t, 0, []string{"override", "unset", "broken", "--policy", "p"}, "taken back: {broken}:p, which was broken")

	var many []overrides.Entry
	for i := range overrides.Most {
		many = append(many, overrides.Entry{Subject: fmt.Sprint("sub:", i), Limit: "none", At: time.Now(), Until: time.Now().Add(time.Hour)})
	}
	imports(many, 1, "there would be 10002 overrides; want at most 10000")
	for i := range many {
		many[i].Limit = "lots"
	}
	imports(many, 1, "entry 10: ", "and 9990 more")
	for i := range many {
		many[i].Limit = "none"
	}
	s.Client().FlushAll(t.Context())
	imports(many, 0, "10000 set")
}

// Two operators read the overrides, and then both change them: what the command has confirmed to either holds, the
// bound too, and above it overrides can be taken back.
func TestTwoOperators(t *testing.T) {
	s := server(t)
	client := s.Client()
	reads := func() *overrideSet {
		t.Helper()
		set := newOverrideSet(client, "rl:")
		if err := set.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		return set
	}
	hour := time.Now().Add(time.Hour)
	bans := func(prefix string, n int) (all []overrides.Entry) {
		for i := range n {
			all = append(all, overrides.Entry{Subject: fmt.Sprint(prefix, i), Limit: overrides.Banned, At: time.Now(), Until: hour})
		}
		return all
	}

	ended := bans("sub:", 2)
	ended[0].Until, ended[1].Until = time.Now(), time.Now()
	if err := reads().write(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	one, other := reads(), reads()
	if err := errors.Join(one.write(t.Context(), bans("sub:", 1)), other.write(t.Context(), bans("x", 1))); err != nil {
		t.Error(err)
	}
	if got := reads(); len(got.entries.All) != 2 || len(got.ended) != 0 {
		t.Errorf("got %v, and %v that have ended; want the bans of sub:0 and x0", got.sorted(), got.ended)
	}

	one, other = reads(), reads()
	// One takes back what the other has set again.
	fields, _ := one.of("sub:0", func(string, string) bool { return true })
	longer := bans("sub:", 1)
	longer[0].Until = hour.Add(time.Hour)
	if err := other.write(t.Context(), longer); err != nil {
		t.Error(err)
	}
	if err := one.takeBack(t.Context(), fields); err == nil || !strings.Contains(err.Error(), "0 of 1 overrides are taken back") || reads().find("", "sub:0") == nil {
		t.Errorf("got %v, and %v; want that the longer ban stays", err, reads().sorted())
	}

	one, other = reads(), reads()
	if err := one.write(t.Context(), bans("a", 6000)); err != nil {
		t.Error(err)
	}
	long := bans("c", 3900)
	for i := range long {
		long[i].Why = strings.Repeat("x", 1000)
	}
	for _, tt := range []struct {
		set  *overrideSet
		all  []overrides.Entry
		want string
	}{
		{other, bans("b", 6000), "there would be 10002 overrides; want at most 10000: put those that stay into the file of policies; the first 3500 of 6000 are set"},
		{reads(), bans("d", part), "there would be 10002 overrides"},
		{nil, long, "want at most 4194304: fewer of them, or shorter reasons; the first "},
	} {
		if tt.set == nil {
			client.FlushAll(t.Context())
			tt.set = reads()
		}
		before := len(reads().entries.All)
		err := tt.set.write(t.Context(), tt.all)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v; want %s", err, tt.want)
			continue
		}

		set := 0
		if _, text, ok := strings.Cut(err.Error(), "; the first "); ok {
			_, _ = fmt.Sscan(text, &set)
		}
		if got := len(reads().entries.All) - before; got != set {
			t.Errorf("%v: got %d overrides", err, got)
		}
	}

	var more []any
	for i := range overrides.Most {
		more = append(more, fmt.Sprintf("{m%d}:%%", i), "?")
	}
	want(t, 0, []string{"ban", "sub:0", "--for", "1h"})
	client.HSet(t.Context(), overrides.Key("rl:"), more...)
	want(t, 0, []string{"override", "unset", "sub:0"}, "taken back: sub:0: banned in all policies")
	want(t, 1, []string{"ban", "sub:0", "--for", "1h"}, "want at most 10000")
}
