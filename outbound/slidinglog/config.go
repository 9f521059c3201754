package slidinglog

import "time"

// Config is the set-up of [New] and [NewMemory], which uses only Now.
type Config struct {
	// Prefix begins every key of New; "" means "sl:". It has no braces, and must differ
	// from that of a redisstore.Store.
	Prefix string

	// Timeout bounds Take and Refund of New's store; 0 means 50 ms, otherwise it is from 1 ms
	// to 1 minute. After it they return an error that wraps [context.DeadlineExceeded].
	Timeout time.Duration

	// Now is the clock of NewMemory; nil means a monotonic clock. With New it must be nil.
	Now func() time.Time
}
