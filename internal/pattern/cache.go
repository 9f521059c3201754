package pattern

import (
	"slices"

	"github.com/seed-e377111c/ratelimit/internal/cowmap"
)

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
	// Convert returns the pattern of a template that is not empty, and of a method as [Standard]
	// returns it. Nil means [FromTemplate].
	Convert func(method, template string) string

	cache Cache[string, []methodPattern] // by template: Go hashes one string faster than two
}

type methodPattern struct{ method, pattern string }

// Pattern returns the pattern of a route.
func (t *Templates) Pattern(method, template string) string {
	if template == "" {
		return ""
	}
	method = Standard(method)
	known, _ := t.cache.Get(template)
	for _, m := range known {
		if m.method == method {
			return m.pattern
		}
	}

	convert := t.Convert
	if convert == nil {
		convert = FromTemplate
	}
	pattern := convert(method, template)
	t.cache.Put(template, append(slices.Clip(known), methodPattern{method, pattern}))
	return pattern
}
