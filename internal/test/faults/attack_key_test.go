package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// longestKey is the most bytes that a key in Redis has beyond its prefix.
const longestKey = len("{}:") + 2*64

// byQuery counts by a parameter, which can hold any bytes.
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

func TestFault81DifferentIdentitiesNeverShareAKey(t *testing.T) {
	o := apart(t, "separators, NUL, CRLF and braces in pairs")
	server := redistest.Start(t)

	s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: patientStore(t, server, config{})}, Policies: []middleware.Policy{
		{Name: "p", Key: keyfunc.Join(byQuery("a"), byQuery("b")), Limit: gcra.PerDay(1)}}})
	parts := []string{"", "a", "b", "ab", ":", "|", "a|", "|a", "a|b", "{", "}", "{a}", "}:p", "}:{", "%", "%7C", "%7c", "%25", "%#", "\x00", "\r\n", "a\r\nSET x 1\r\n",
		" ", "\xff", "é", "e\u0301", "A", strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("{", 22), strings.Repeat("a", 64) + "\x00"}
	pairs, fresh, again := 0, 0, 0
	for _, a := range parts {
		for _, b := range parts {
			target := "GET /ok?a=" + escaped(a) + "&b=" + escaped(b)
			pairs++

			if s.Do(t, target).StatusCode == http.StatusOK {
				fresh++
			} else {
				t.Errorf("%q and %q: denied as if seen before", a, b)
			}

			if s.Do(t, target).StatusCode == http.StatusOK {
				again++
			}
		}
	}

	o.over.Add(int64(again))
	expect(t, "first and second requests that passed", []int{fresh, again}, []int{pairs, 0})
	keys := bucketKeys(t, server)
	expect(t, "keys", len(keys), pairs)

	for _, key := range keys {
		if !strings.HasPrefix(key, "rl:{") || !strings.HasSuffix(key, "}:p") || strings.Count(key, "{")+strings.Count(key, "}") != 2 || len(key) > len("rl:")+longestKey {
			t.Errorf("key %q: want rl:{...}:p with no other brace, and at most %d bytes", key, len("rl:")+longestKey)
		}
	}
}

func TestFault83LongKeyTakesNoMoreRoom(t *testing.T) {
	o := apart(t, "identities of 900 KB")
	server := redistest.Start(t)
	s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: patientStore(t, server, config{})}, Policies: []middleware.Policy{
		{Name: "p", Key: byClient, Limit: gcra.PerDay(1)}}})
	var sizes []int64

	for _, n := range []int{65, 1 << 10, 900 << 10} {
		id := strings.Repeat("k", n)
		expect(t, fmt.Sprint(n, " bytes"), s.Statuses(t, "GET /ok", 2, "X-Client: "+id), []int{200, 429})
		expect(t, fmt.Sprint(n, " bytes, the last differs"), s.Do(t, "GET /ok", "X-Client: "+id[:n-1]+"x").StatusCode, 200)
	}

	keys := bucketKeys(t, server)
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

	// Larger headers do not reach the limiter.
	a := s.Raw(t, "GET /ok HTTP/1.1\r\nHost: h\r\nX-Client: "+strings.Repeat("k", 2<<20)+"\r\n\r\n")
	if a != nil {
		expect(t, "2 MB", a.StatusCode, http.StatusRequestHeaderFieldsTooLarge)
	}
	expect(t, "decisions with an error", s.failed.Load(), 0)
}
