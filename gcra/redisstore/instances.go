package redisstore

// instances is the number of servers that share each limit.
func (s *Store) instances() int { return 1 }
