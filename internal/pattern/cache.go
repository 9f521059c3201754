package pattern

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxMemo is more routes than an application has, and little to hold should
// somebody find a way to invent them.
const maxCache = 1024

// Memo remembers what was worked out for a route. Reading takes no lock and
// allocates nothing; the few writes copy. The zero value is ready.
type Cache[K comparable, V any] struct {
	entries atomic.Pointer[map[K]V]
	mu      sync.Mutex // of writers
}

// Get returns what is known under the key.
func (m *Cache[K, V]) Get(key K) (v V, ok bool) {
	if known := m.entries.Load(); known != nil {
		v, ok = (*known)[key]
	}
	return v, ok
}

// Put remembers v, unless a thousand others are remembered already.
func (m *Cache[K, V]) Put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[K]V{}
	if known := m.entries.Load(); known != nil {
		if len(*known) >= maxCache {
			return
		}
		next = maps.Clone(*known)
	}
	next[key] = v
	m.entries.Store(&next)
}

// Templates is [FromTemplate] with a memory, for use on every request.
type Templates struct {
	cache Cache[[2]string, string]
}

// Pattern is FromTemplate(method, template).
func (t *Templates) Pattern(method, template string) string {
	if template == "" {
		return ""
	}
	key := [2]string{Standard(method), template}
	pattern, ok := t.cache.Get(key)
	if !ok {
		pattern = FromTemplate(method, template)
		t.cache.Put(key, pattern)
	}
	return pattern
}
