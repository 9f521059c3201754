package middleware

import (
	"net/http"
	"testing"
	"unsafe"
)

func TestZSize(t *testing.T) {
	var v visit
	var r http.Request
	var p PolicyResult
	var e entry
	t.Log(unsafe.Sizeof(v), unsafe.Sizeof(r), unsafe.Sizeof(p), unsafe.Sizeof(e), unsafe.Sizeof(v.decision), unsafe.Sizeof(v.oneCharge))
}
