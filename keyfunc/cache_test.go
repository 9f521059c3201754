package keyfunc

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
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
