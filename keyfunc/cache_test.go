package keyfunc

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

func idOf(i int) tokenID {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(i)))
}

// Whatever the sizes of entries, together they keep to the bound, and the last one is there.
func TestCacheIsBounded(t *testing.T) {
	const largest = 36 << 10 // a subject of 12 KiB, escaped
	c := newCache(10 * largest)
	for i := range 2000 {
		e := entry{key: strings.Repeat("a", rand.IntN(largest))}
		c.put(idOf(i), e)
		if got, ok := c.get(idOf(i)); !ok || got.key != e.key {
			t.Fatalf("entry %d of %d bytes, just put: got %d bytes, %t; want itself", i, len(e.key), len(got.key), ok)
		}

		sum := 0
		for _, e := range c.entries {
			sum += entryBytes + len(e.key)
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
