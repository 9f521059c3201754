package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// request returns a request from the peer with header lines: name, value, ...
func request(peer string, header ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// keyOf returns the key of a function that must not fail.
func keyOf(t testing.TB, key keyfunc.Func, r *http.Request) string {
	t.Helper()
	k, err := key(r)
	if err != nil {
		t.Fatalf("got error %v; want none, whatever a client sends", err)
	}
	return k
}
