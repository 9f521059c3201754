package middleware

import (
	"strconv"
	"testing"
	"unsafe"
)

// The allocator has sizes of 640, 704 and 768 bytes about here, and takes 8 of
// what has pointers and is larger than 512.
func TestCarrierFitsItsSize(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("a size for 64 bits")
	}
	if size := unsafe.Sizeof(requestWithState{}) + 8; size > 704 {
		t.Errorf("a visit with its request takes %d bytes; want at most 704", size)
	}
}
