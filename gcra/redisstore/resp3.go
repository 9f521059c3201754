package redisstore

import (
	"crypto/tls"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// pushWait is how long go-redis 9.23 waits, under RESP3, for a push message
// before the first command on a TLS 1.3 connection: it takes the session tickets
// that have arrived there for one.
const pushWait = 50 * time.Millisecond

// warnRESP3 logs that the client may never get an answer within the Timeout.
func (s *Store) warnRESP3() {
	var config *tls.Config
	var protocol int
	switch c := s.client.(type) {
	case *redis.Client: // also of a failover client
		config, protocol = c.Options().TLSConfig, c.Options().Protocol
	case *redis.ClusterClient:
		config, protocol = c.Options().TLSConfig, c.Options().Protocol
	case *redis.Ring:
		config, protocol = c.Options().TLSConfig, c.Options().Protocol
	}
	if config == nil || protocol == 2 || s.timeout > pushWait { // a protocol of 0 is RESP3 too
		return
	}
	s.log.Report(diag.RedisRESP3TLS, "", "calls may never reach Redis: under RESP3 go-redis waits up to 50 ms on a new TLS connection, and the store's Timeout is not longer than that",
		"timeout", s.timeout, "hint", "set Protocol: 2 in the options of the client")
}
