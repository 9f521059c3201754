package keyfunc

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func idOf(i int) tokenID {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
}

// Whatever the sizes of entries, together they keep to the bound, and the last one is there
// unless it is too large.
func TestCacheIsBounded(t *testing.T) {
	c := newCache(10 * maxEntry)
	for i := range 2000 {
		e := entry{key: fmt.Sprint(i), claims: map[string]any{"a": strings.Repeat("a", rand.IntN(2*maxEntry))}}
		_, size := copyOf(e.claims)
		size += entryBytes + len(e.key)

		c.put(idOf(i), e)
		if got, ok := c.get(idOf(i)); ok != (size <= maxEntry) || ok && (got.key != e.key || got.size != size) {
			t.Fatalf("entry %d of %d bytes, just put: got %q of %d bytes, %t; want itself up to %d", i, size, got.key, got.size, ok, maxEntry)
		}

		sum := 0
		for _, e := range c.entries {
			sum += e.size
		}
		if sum != c.bytes || sum > c.most {
			t.Fatalf("entries of %d bytes, counted as %d; want at most %d", sum, c.bytes, c.most)
		}
	}
}

// To put an existing entry evicts no other.
func TestCachePutAgain(t *testing.T) {
	c := newCache(2 * (entryBytes + 1))
	c.put(idOf(1), entry{key: "1"})
	c.put(idOf(2), entry{key: "2"})
	for range 100 {
		c.put(idOf(2), entry{key: "2"})
	}
	if _, ok := c.get(idOf(1)); !ok {
		t.Error("entry 1 was evicted")
	}
}

func TestCacheConcurrent(t *testing.T) {
	const size = 16
	c := newCache(size * (entryBytes + 1))
	var wg sync.WaitGroup

	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				id := idOf((g*7 + i) % (4 * size))
				c.put(id, entry{key: "x"})
				if e, ok := c.get(id); ok && e.key != "x" {
					t.Errorf("got %q; want x", e.key)
				}
			}
		})
	}

	wg.Wait()
	if len(c.entries) > size {
		t.Errorf("holds %d entries; want at most %d", len(c.entries), size)
	}
}

// Only valid tokens are cached, and their times are checked again.
func TestVerifierCachesOnlyValid(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	clock := jwt.WithTimeFunc(func() time.Time { return now })
	v := newVerifier("JWTSubject", func(*jwt.Token) (any, error) { return []byte("right"), nil }, []string{"HS256"}, clock)

	sign := func(key, subject string) string {
		claims := jwt.RegisteredClaims{Subject: subject, ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour))}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}

	keyOf := func(token string) string {
		key, _ := v.key(&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
		return key
	}

	for i := range 100 {
		keyOf(sign("wrong", fmt.Sprint(i)))
	}
	if got := len(v.verified.entries); got != 0 {
		t.Errorf("after 100 forged tokens: got %d cached; want 0", got)
	}

	token := sign("right", "alice")
	keyOf(token)
	if got := len(v.verified.entries); got != 1 {
		t.Errorf("after a valid token: got %d cached; want 1", got)
	}
	now = now.Add(time.Hour)
	if got := keyOf(token); got != "" {
		t.Errorf("after it has expired: got key %q; want none", got)
	}
}

func BenchmarkCacheFull(b *testing.B) {
	c := newCache(cacheBytes)
	for i := range cacheBytes / entryBytes {
		c.put(idOf(i), entry{})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var id tokenID
		binary.BigEndian.PutUint64(id[:], uint64(i))
		c.put(id, entry{})
	}
}
