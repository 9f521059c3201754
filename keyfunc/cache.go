package keyfunc

import (
	"crypto/sha256"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

// A cache holds verified tokens, at most size of them. A new entry evicts a random
// one: that token is verified again, and a hit needs no bookkeeping.
//
// Its keys are the SHA-256 of tokens, so that entries are small and memory contains no
// credentials.
type cache struct {
	size int

	mu      sync.Mutex // never held during a verification
	entries map[tokenID]entry
}

type tokenID [sha256.Size]byte

// entry is the result of a verification.
type entry struct {
	key   string
	times *jwt.RegisteredClaims // exp, nbf and iat, which are checked again
}

func newCache(size int) *cache {
	return &cache{size: size, entries: make(map[tokenID]entry)}
}

func (c *cache) get(id tokenID) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[id]
	return e, ok
}

func (c *cache) put(id tokenID, e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[id]; !known && len(c.entries) >= c.size {
		for victim := range c.entries { // in random order
			delete(c.entries, victim)
			break
		}
	}
	c.entries[id] = e
}
