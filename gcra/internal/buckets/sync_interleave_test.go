//go:build interleave

package buckets

import "sync/atomic"

// yield lets another goroutine go on. It is replaced while interleavings are
// explored; only one goroutine runs at a time then.
var yield = func(waitsFor *mutex) {}

type mutex struct{ held bool }

func (m *mutex) Lock() {
	yield(nil)
	for m.held {
		yield(m)
	}
	m.held = true
}

func (m *mutex) Unlock() {
	yield(nil)
	m.held = false
}

type atomicInt64 struct{ v atomic.Int64 }

func (a *atomicInt64) Load() int64        { yield(nil); return a.v.Load() }
func (a *atomicInt64) Store(x int64)      { yield(nil); a.v.Store(x) }
func (a *atomicInt64) Swap(x int64) int64 { yield(nil); return a.v.Swap(x) }

func (a *atomicInt64) CompareAndSwap(old, x int64) bool {
	yield(nil)
	return a.v.CompareAndSwap(old, x)
}

type atomicUint64 struct{ v atomic.Uint64 }

func (a *atomicUint64) Load() uint64   { yield(nil); return a.v.Load() }
func (a *atomicUint64) Store(x uint64) { yield(nil); a.v.Store(x) }

type pointer[T any] struct{ v atomic.Pointer[T] }

func (p *pointer[T]) Load() *T   { yield(nil); return p.v.Load() }
func (p *pointer[T]) Store(x *T) { yield(nil); p.v.Store(x) }
