package keyfunc

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

const (
	cacheBytes = 16 << 20 // of the entries of one cache
	maxEntry   = 16 << 10 // of the largest one
	entryBytes = 300      // of one without key and claims
)

// A cache holds verified tokens, in `most` bytes or fewer. A new entry evicts random
// ones: those tokens are verified again, and a hit needs no bookkeeping.
//
// Its keys are the SHA-256 of tokens, so that entries are small and memory contains no
// credentials.
type cache struct {
	most int

	mu      sync.Mutex // never held during a verification
	entries map[tokenID]entry
	bytes   int // of all entries
}

type tokenID [sha256.Size]byte

// entry is the result of a verification.
type entry struct {
	key    string
	times  *jwt.RegisteredClaims // exp, nbf and iat, which are checked again
	claims map[string]any        // all, or nil; never changed
	size   int                   // about how many bytes it takes in a cache, set by put
}

func newCache(most int) *cache {
	return &cache{most: most, entries: make(map[tokenID]entry)}
}

func (c *cache) get(id tokenID) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[id]
	return e, ok
}

// put adds an entry, unless it is larger than maxEntry.
func (c *cache) put(id tokenID, e entry) {
	e.size = entryBytes + len(e.key)
	if e.claims != nil {
		// The copy has no room to grow.
		claims, size := copyOf(e.claims)
		e.claims = claims.(map[string]any)
		e.size += size
	}
	// One large token must not push out thousands of others.
	if e.size > maxEntry {
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	// Two requests may have verified one token at the same time.
	c.bytes += e.size - c.entries[id].size
	c.entries[id] = e

	for victim, v := range c.entries { // in random order
		if c.bytes <= c.most {
			break
		}
		if victim != id {
			delete(c.entries, victim)
			c.bytes -= v.size
		}
	}
}

// copyOf returns a copy of a value of JSON, and about how many bytes it takes.
func copyOf(value any) (copied any, size int) {
	size = 16 // of an any
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		size += 320 + 64*max(0, len(value)-8) // room for 8 fields, and for others
		for name, field := range value {
			c, n := copyOf(field)
			fields[name] = c
			size += len(name) + n
		}
		return fields, size

	case []any:
		list := make([]any, len(value))
		size += 24
		for i, element := range value {
			c, n := copyOf(element)
			list[i] = c
			size += n
		}
		return list, size

	case string:
		size += len(value)
	case json.Number:
		size += len(value)
	case float64:
		size += 8
	}
	return value, size
}
