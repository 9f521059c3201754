//go:build !interleave

package buckets

import (
	"sync"
	"sync/atomic"
)

// The synchronisation of this package. Built with the tag interleave, each
// operation lets a test choose which goroutine goes on (see TestInterleavings).
type (
	mutex          = sync.Mutex
	atomicInt64    = atomic.Int64
	atomicUint64   = atomic.Uint64
	pointer[T any] = atomic.Pointer[T]
)
