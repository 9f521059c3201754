package middleware

import (
	"strconv"
	"testing"
	"unsafe"
)

// The allocator has size classes of 512, 576 and 640 bytes, and uses 8 bytes of
// objects with pointers that are larger than 512.
func TestRequestWithStateFitsItsSizeClass(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the size class is for 64 bits")
	}
	if size := unsafe.Sizeof(requestWithState{}) + 8; size > 640 {
		t.Errorf("a requestWithState takes %d bytes; want at most 640", size)
	}
}
