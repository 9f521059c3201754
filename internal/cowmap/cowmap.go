// Package cowmap has a map for frequent reads and rare writes.
package cowmap

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map is a map that is copied on write. Reads take no lock and allocate nothing.
// The zero value is ready.
type Map[K comparable, V any] struct {
	current atomic.Pointer[map[K]V]
	mu      sync.Mutex // of writers
}

// Load returns the current map, which must not be changed.
func (m *Map[K, V]) Load() map[K]V {
	if current := m.current.Load(); current != nil {
		return *current
	}
	return nil
}

// Update calls change with a copy of the map, which then replaces the map.
func (m *Map[K, V]) Update(change func(map[K]V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[K]V{}
	maps.Copy(next, m.Load())
	change(next)
	m.current.Store(&next)
}
