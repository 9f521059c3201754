package keyfunc

import (
	"crypto/sha256"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

// A cache remembers which tokens have verified. It holds at most size entries;
// beyond that a newcomer takes the place of one picked at random, which costs
// that one a verification and needs no bookkeeping on a hit.
//
// Tokens are known by their SHA-256: an entry has the same small size for any
// token, and no credential lies about in memory.
type cache struct {
	size int

	mu      sync.Mutex // held for one map operation, never for a verification
	entries map[tokenID]entry
}

type tokenID [sha256.Size]byte

// entry is what a token has been verified to say.
type entry struct {
	key   string
	times *jwt.RegisteredClaims // exp, nbf and iat: what a later look may find changed
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
		for victim := range c.entries { // Go starts at a random one
			delete(c.entries, victim)
			break
		}
	}
	c.entries[id] = e
}

func (c *cache) remove(id tokenID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, id)
}
