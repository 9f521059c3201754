//go:build !interleave

package buckets

import (
	"sync"
	"sync/atomic"
)

// What goroutines synchronise by. Built with the tag interleave, each operation
// lets a scheduler choose which goroutine goes on (see TestInterleavings).
type (
	mutex          = sync.Mutex
	atomicInt64    = atomic.Int64
	atomicUint64   = atomic.Uint64
	pointer[T any] = atomic.Pointer[T]
)
