package pattern

import (
	"sync"
	"sync/atomic"
)

// maxCache is more routes than an application has, and bounds the memory if a client finds a way to
// invent routes.
const maxCache = 1024

// Cache holds what was computed for a route. Get takes no lock and allocates nothing. It never evicts.
// The zero value is ready to use.
type Cache[K comparable, V any] struct {
	entries sync.Map
	size    atomic.Int64
}

// Get returns the value of the key, and whether there is one.
func (c *Cache[K, V]) Get(key K) (v V, ok bool) {
	found, ok := c.entries.Load(key)
	v, _ = found.(V) // not of an interface that is nil
	return v, ok
}

// Put stores v, unless the cache is full.
func (c *Cache[K, V]) Put(key K, v V) {
	if c.size.Load() >= maxCache {
		return
	}
	if _, known := c.entries.LoadOrStore(key, v); !known {
		c.size.Add(1)
	}
}

// Templates converts route templates, with a cache, for use on every request.
type Templates struct {
	Convert func(method, template string) string // of a template that is not empty, and of a method as [Standard] returns it

	cache Cache[methodTemplate, string]
}

type methodTemplate struct{ method, template string }

// Pattern returns the pattern of a route, and "" for the empty template of a request without one.
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
