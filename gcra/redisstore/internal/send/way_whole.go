package send

import "github.com/redis/go-redis/v9"

// wayWhole is for one keyspace: one script for all subjects of the batch.
type wayWhole struct{ waySubject }

func (wayWhole) shares(string) string { return "" }

// notRun is true when a server has become a cluster.
func (wayWhole) notRun(s *script) bool { return redis.HasErrorPrefix(s.err, "CROSSSLOT") }
