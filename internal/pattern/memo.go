package pattern

import "github.com/seed-e377111c/ratelimit/internal/cowmap"

// maxMemo is more routes than an application has, and little to hold should
// somebody find a way to invent them.
const maxMemo = 1024

// Memo remembers what was worked out for a route. Reading takes no lock and
// allocates nothing; the few writes copy. The zero value is ready.
type Memo[K comparable, V any] struct {
	known cowmap.Map[K, V]
}

// Get returns what is known under the key.
func (m *Memo[K, V]) Get(key K) (v V, ok bool) {
	v, ok = m.known.Load()[key]
	return v, ok
}

// Put remembers v, unless a thousand others are remembered already.
func (m *Memo[K, V]) Put(key K, v V) {
	if len(m.known.Load()) < maxMemo {
		m.known.Update(func(known map[K]V) { known[key] = v })
	}
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
