package middleware

import (
	"strconv"
	"testing"
	"unsafe"
)

// The allocator has size classes of 576, 640 and 704 bytes, and uses 8 bytes of
// objects with pointers that are larger than 512.
func TestRequestWithStateFitsItsSizeClass(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the size class is for 64 bits")
	}
	if size := unsafe.Sizeof(requestWithState{}) + 8; size > 704 {
		t.Errorf("a requestWithState takes %d bytes; want at most 704", size)
	}
}
