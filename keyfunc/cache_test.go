package keyfunc

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func idOf(i int) tokenID {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
}

// A full cache accepts new entries and keeps its size.
func TestCacheIsBounded(t *testing.T) {
	const size = 100
	c := newCache(size)
	for i := range 10 * size {
		c.put(idOf(i), entry{key: fmt.Sprint(i)})
		if e, ok := c.get(idOf(i)); !ok || e.key != fmt.Sprint(i) {
			t.Fatalf("entry %d, just put: got %q, %t; want itself", i, e.key, ok)
		}
		if got, want := len(c.entries), min(i+1, size); got != want {
			t.Fatalf("after %d entries: holds %d; want %d", i+1, got, want)
		}
	}
}

// To put an existing entry evicts no other.
func TestCachePutAgain(t *testing.T) {
	c := newCache(2)
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
	c := newCache(size)
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
	v := newVerifier(func(*jwt.Token) (any, error) { return []byte("right"), nil }, []string{"HS256"}, clock)

	sign := func(key, subject string) string {
		claims := jwt.RegisteredClaims{Subject: subject, ExpiresAt: jwt.NewNumericDate(now.Add(time.Hour))}
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}

	for i := range 100 {
		v.subject(t.Context(), sign("wrong", fmt.Sprint(i)))
	}
	if got := len(v.verified.entries); got != 0 {
		t.Errorf("after 100 forged tokens: got %d cached; want 0", got)
	}

	token := sign("right", "alice")
	v.subject(t.Context(), token)
	if got := len(v.verified.entries); got != 1 {
		t.Errorf("after a valid token: got %d cached; want 1", got)
	}
	now = now.Add(time.Hour)
	if got := v.subject(t.Context(), token); got != "" {
		t.Errorf("after it has expired: got key %q; want none", got)
	}
}

func BenchmarkCacheFull(b *testing.B) {
	c := newCache(cachedTokens)
	for i := range cachedTokens {
		c.put(idOf(i), entry{})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var id tokenID
		binary.BigEndian.PutUint64(id[:], uint64(i))
		c.put(id, entry{})
	}
}
