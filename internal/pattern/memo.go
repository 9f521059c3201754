package pattern

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxMemo is more routes than an application has, and little to hold should
// somebody find a way to invent them.
const maxMemo = 1024

// Memo remembers what was worked out for a route. Reading takes no lock and
// allocates nothing; the few writes copy. The zero value is ready.
type Memo[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	mu    sync.Mutex // of writers
}

// Get returns what is known under the key.
func (m *Memo[K, V]) Get(key K) (v V, ok bool) {
	if known := m.known.Load(); known != nil {
		v, ok = (*known)[key]
	}
	return v, ok
}

// Put remembers v, unless a thousand others are remembered already.
func (m *Memo[K, V]) Put(key K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[K]V{}
	if known := m.known.Load(); known != nil {
		if len(*known) >= maxMemo {
			return
		}
		next = maps.Clone(*known)
	}
	next[key] = v
	m.known.Store(&next)
}

// Templates is [FromTemplate] with a memory, for use on every request.
type Templates struct {
	memo Memo[[2]string, string]
}

// Pattern is FromTemplate(method, template).
func (t *Templates) Pattern(method, template string) string {
	if template == "" {
		return ""
	}
	key := [2]string{Standard(method), template}
	pattern, ok := t.memo.Get(key)
	if !ok {
		pattern = FromTemplate(method, template)
		t.memo.Put(key, pattern)
	}
	return pattern
}
