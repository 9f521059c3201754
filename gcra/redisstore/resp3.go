package redisstore

import (
	"time"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// pushWait is how long go-redis 9.23 waits, under RESP3, for a push message
// before the first command on a TLS 1.3 connection: it takes the session tickets
// that have arrived there for one.
const pushWait = 50 * time.Millisecond

// warnRESP3 logs that the client may never get an answer within the Timeout.
func (s *Store) warnRESP3() {
	if conn, _ := rediskit.ConnOf(s.client); !conn.TLS || !conn.RESP3 || s.timeout > pushWait {
		return
	}
	s.log.Report(diag.RedisRESP3TLS, "", "calls may never reach Redis: under RESP3 go-redis waits up to 50 ms on a new TLS connection, and the store's Timeout is not longer than that",
		"timeout", s.timeout, "hint", "set Protocol: 2 in the options of the client")
}
