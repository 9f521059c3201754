package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// longestKey is the most bytes that a key in Redis has beyond its prefix.
const longestKey = len("{}:") + 2*64

// byQuery counts what the client writes into a parameter: any bytes.
func byQuery(name string) keyfunc.Func {
	return func(r *http.Request) (string, error) { return r.URL.Query().Get(name), nil }
}

// escaped writes every byte of s as %XX.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

var _ = fault(81, "different_identities_never_share_a_key", func(t *testing.T, o *outcome) {
	o.injected = "separators, NUL, CRLF and braces in pairs"
	server := redistest.Start(t)
	s := openSite(t, o, setup{Config: middleware.Config{Store: patientStore(t, server)}, policies: []middleware.Policy{
		{Name: "p", Key: keyfunc.Join(byQuery("a"), byQuery("b")), Limit: gcra.PerDay(1)}}})
	parts := []string{"", "a", "b", "ab", ":", "|", "a|", "|a", "a|b", "{", "}", "{a}", "}:p", "}:{", "%", "%7C", "%7c", "%25", "%#", "\x00", "\r\n", "a\r\nSET x 1\r\n",
		" ", "\xff", "é", "e\u0301", "A", strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("{", 22), strings.Repeat("a", 64) + "\x00"}
	pairs, fresh, again := 0, 0, 0
	for _, a := range parts {
		for _, b := range parts {
			target := "GET /ok?a=" + escaped(a) + "&b=" + escaped(b)
			pairs++
			if s.do(t, target).StatusCode == http.StatusOK {
				fresh++
			} else {
				t.Errorf("%q and %q: refused as if seen before", a, b)
			}
			if s.do(t, target).StatusCode == http.StatusOK {
				again++
			}
		}
	}
	o.over.Add(int64(again))
	expect(t, "first and second requests that passed", []int{fresh, again}, []int{pairs, 0})
	keys, err := server.Client().Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "keys", len(keys), pairs)
	for _, key := range keys {
		if !strings.HasPrefix(key, "rl:{") || !strings.HasSuffix(key, "}:p") || strings.Count(key, "{")+strings.Count(key, "}") != 2 || len(key) > len("rl:")+longestKey {
			t.Errorf("key %q: want rl:{...}:p with no other brace, and at most %d bytes", key, len("rl:")+longestKey)
		}
	}
})

var _ = fault(82, "nobody_chooses_his_slot", func(t *testing.T, o *outcome) {
	o.injected = "{same} in identities, on a cluster"
	cluster := redistest.StartCluster(t)
	store := redisstore.New(cluster.Client())
	store.Timeout = patience
	s := openSite(t, o, setup{Config: middleware.Config{Store: store}, policies: []middleware.Policy{
		{Name: "one", Key: byClient, Limit: gcra.PerDay(1)},
		{Name: "two", Key: byClient, Limit: gcra.PerDay(2)},
		{Name: "all", Key: everybody, Limit: gcra.PerDay(1_000_000).WithBurst(1000)},
	}})
	slots := make(map[int64]bool)
	n := sized(60, 500)
	for i := range n {
		id := fmt.Sprintf([]string{"{same}%d", "user{same}%d", "{same}{same}%d", "}{same}%d", "{}%d{same}"}[i%5], i)
		expect(t, id, s.statuses(t, "GET /ok", 2, "X-Client: "+id), []int{200, 429})
	}
	expect(t, "decisions with an error", s.failed.Load(), 0)
	for _, node := range cluster.Nodes[:3] {
		keys, err := node.Client().Keys(t.Context(), "*:one").Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) < n/6 {
			t.Errorf("%s holds %d of %d keys; want about a third", node.Addr, len(keys), n)
		}
		for _, key := range keys {
			slot, err := node.Client().ClusterKeySlot(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			slots[slot] = true
			two, err := node.Client().ClusterKeySlot(t.Context(), strings.TrimSuffix(key, "one")+"two").Result()
			if err != nil || two != slot {
				t.Errorf("%s is in slot %d, policy two of it in %d, %v; want the same", key, slot, two, err)
			}
		}
	}
	if len(slots) < n*9/10 {
		t.Errorf("%d identities came into %d slots; want nearly as many", n, len(slots))
	}
})

var _ = fault(83, "a_long_key_takes_no_more_room", func(t *testing.T, o *outcome) {
	o.injected = "identities of 900 KB"
	server := redistest.Start(t)
	eachFramework(t, func(t *testing.T, f framework) {
		s := openSite(t, o, setup{framework: f, Config: middleware.Config{Store: patientStore(t, server)}, policies: []middleware.Policy{
			{Name: f.name, Key: byClient, Limit: gcra.PerDay(1)}}})
		var sizes []int64
		for _, n := range []int{65, 1 << 10, 900 << 10} {
			id := strings.Repeat("k", n)
			expect(t, fmt.Sprint(n, " bytes"), s.statuses(t, "GET /ok", 2, "X-Client: "+id), []int{200, 429})
			expect(t, fmt.Sprint(n, " bytes, the last differs"), s.do(t, "GET /ok", "X-Client: "+id[:n-1]+"x").StatusCode, 200)
		}
		keys, err := server.Client().Keys(t.Context(), "*"+f.name).Result()
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "keys", len(keys), 6)
		for _, key := range keys {
			size, err := server.Client().MemoryUsage(t.Context(), key).Result()
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, size)
			if len(key) > len("rl:")+longestKey || size != sizes[0] {
				t.Errorf("key %q takes %d bytes in Redis, the first %d; want the same", key, size, sizes[0])
			}
		}
		// Beyond the server's own bound for headers the limiter is not reached.
		a := s.raw(t, "GET /ok HTTP/1.1\r\nHost: h\r\nX-Client: "+strings.Repeat("k", 2<<20)+"\r\n\r\n")
		if a != nil {
			expect(t, "2 MB", a.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
		}
		expect(t, "decisions with an error", s.failed.Load(), 0)
	})
})
