package slidinglog

import "time"

// Config is the set-up of [New] and [NewMemory]. The zero value is the common choice.
type Config struct {
	// Prefix begins every key of New; "" means "sl:". It has no braces, which
	// could put all keys into one slot, and must differ from that of a redisstore.Store,
	// whose keys have another type. NewMemory does not use it.
	Prefix string

	// Timeout bounds Take and Refund of New's store, independent of the client's settings; 0
	// means 50 ms, otherwise it is from 1 ms to 1 minute. After it they return an error that
	// wraps [context.DeadlineExceeded]. NewMemory does not use it.
	Timeout time.Duration

	// Now is the clock of NewMemory; nil means a monotonic clock, which does not
	// change when the wall clock is set. With New it is nil, as Redis has the clock.
	Now func() time.Time
}
