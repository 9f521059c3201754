package redisstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/published"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Stores say what the policies of their limiters are, each content once and in 16 KB, whatever was
// there before. What has changed replaces what a store has said before.
func TestPublish(t *testing.T) {
	client := redistest.Any(t)
	prefix := newPrefix()
	key := prefix + published.Suffix
	said := func(limiters, servers int) func() bool {
		return func() bool {
			text := client.Get(t.Context(), key).Val()
			all, texts, err := published.Read(text, time.Now())
			return err == nil && len(text) <= published.MostBytes && len(texts) == limiters && len(all) == servers
		}
	}
	text := func(name string) func() string {
		return func() string { return published.Text([]published.Policy{{Name: name}}) }
	}

	if err := client.Set(t.Context(), key, "limiter ab [\nserver x 1 \n"+strings.Repeat("x", 20_000), 0).Err(); err != nil {
		t.Fatal(err)
	}
	var changing atomic.Value
	changing.Store("a")
	one, two := storeOn(t, client, config{Prefix: prefix, Timeout: patience}), storeOn(t, client, config{Prefix: prefix, Timeout: patience})
	one.Publish("a", func() string { return text(changing.Load().(string))() })
	redistest.Eventually(t, patience, "a limiter", said(1, 1))
	changing.Store("new")
	one.Mark(time.Second) // as traffic does
	if text := client.Get(t.Context(), key).Val(); !strings.Contains(text, "new") {
		t.Errorf("after a change and a mark: got %q; want the new policies", text)
	}
	one.Publish("b", text("b"))
	redistest.Eventually(t, patience, "two limiters of one store", said(2, 1))
	two.Publish("b", text("b"))
	redistest.Eventually(t, patience, "a limiter of two stores, once", said(2, 2))
	if ttl := client.TTL(t.Context(), key).Val(); ttl < published.Lasts-patience || ttl > published.Lasts {
		t.Errorf("got a TTL of %v; want %v", ttl, published.Lasts)
	}

	now := time.Now().Unix()
	var many strings.Builder
	for i := range 150 {
		fmt.Fprintf(&many, "server old%d %d abc\n", i, now-10)
	}
	fmt.Fprintf(&many, "server gone %d abc\nserver ahead %d abc\nlimiter abc [{\"name\":\"%s\"}]\n", now-4000, now+4000, strings.Repeat("x", 250))
	client.Set(t.Context(), key, "1\n"+many.String(), 0)
	gone := false
	three := storeOn(t, client, config{Prefix: prefix, Timeout: patience})
	three.Publish("c", func() string {
		if gone {
			return ""
		}
		return strings.Repeat("c", 9000)
	})
	redistest.Eventually(t, patience, "the others to stay", func() bool {
		text := client.Get(t.Context(), key).Val()
		return strings.Count(text, "\nserver ") == 151 && strings.Count(text, "\nlimiter ") == 2 && !strings.Contains(text, "gone") && !strings.Contains(text, "ahead")
	})

	gone = true
	client.Set(t.Context(), key, "2\nnewer", 0)
	three.Publish("d", text("d"))
	one.Publish("e", text("e"))
	redistest.Eventually(t, patience, "a newer format to stay", func() bool { return client.Get(t.Context(), key).Val() == "2\nnewer" })
}
