package keyfunc

import (
	"crypto/sha256"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

const (
	cacheBytes = 16 << 20 // of the entries of one cache
	entryBytes = 300      // of one without its key
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
	key   string
	times *jwt.RegisteredClaims // exp, nbf and iat, which are checked again
}

// size is about how many bytes the entry takes in a cache.
func (e entry) size() int { return entryBytes + len(e.key) }

func newCache(most int) *cache {
	return &cache{most: most, entries: make(map[tokenID]entry)}
}

func (c *cache) get(id tokenID) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[id]
	return e, ok
}

// put adds an entry.
func (c *cache) put(id tokenID, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Two requests may have verified one token at the same time.
	if _, known := c.entries[id]; !known {
		c.entries[id] = e
		c.bytes += e.size()
	}

	for victim, v := range c.entries { // in random order
		if c.bytes <= c.most {
			break
		}
		if victim != id {
			delete(c.entries, victim)
			c.bytes -= v.size()
		}
	}
}
