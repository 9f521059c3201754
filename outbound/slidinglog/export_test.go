package slidinglog

// Prefix begins every key of the store.
func (r *Store) Prefix() string { return r.prefix }

// Logs is the number of logs that the store holds.
func (m *Memory) Logs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.logs)
}
