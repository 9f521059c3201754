package pattern

import "github.com/seed-e377111c/ratelimit/internal/cowmap"

// maxCache is more routes than an application has, and bounds the memory if a client finds a way to
// invent routes.
const maxCache = 1024

// Cache holds what was computed for a route. Get takes no lock and allocates nothing; Put copies
// the map. It never evicts. The zero value is ready to use.
type Cache[K comparable, V any] struct {
	entries cowmap.Map[K, V]
}

// Get returns the value of the key, and whether there is one.
func (m *Cache[K, V]) Get(key K) (v V, ok bool) {
	v, ok = m.entries.Load()[key]
	return v, ok
}

// Put stores v, unless the cache is full.
func (m *Cache[K, V]) Put(key K, v V) {
	if len(m.entries.Load()) < maxCache {
		m.entries.Update(func(entries map[K]V) { entries[key] = v })
	}
}

// Templates converts route templates, with a cache, for use on every request.
type Templates struct {
	Convert func(method, template string) string // of a template that is not empty, and of a method as [Standard] returns it

	cache Cache[methodTemplate, string]
}

type methodTemplate struct{ method, template string }

// Pattern returns the pattern of a route.
func (t *Templates) Pattern(method, template string) string {
	if template == "" {
		return ""
	}

	key := methodTemplate{Standard(method), template}
	pattern, ok := t.cache.Get(key)
	if !ok {
		pattern = t.Convert(key.method, template)
		t.cache.Put(key, pattern)
	}
	return pattern
}
