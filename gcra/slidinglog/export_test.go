package slidinglog

// Prefix begins every key of the store.
func (r *Store) Prefix() string { return r.prefix }
