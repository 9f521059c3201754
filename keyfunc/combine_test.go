package keyfunc_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// says returns a key function with a constant result.
func says(key string) keyfunc.Func {
	return func(*http.Request) (string, error) { return key, nil }
}

var (
	errCause = errors.New("cause")
	fails    = func(*http.Request) (string, error) { return "", errCause }
	failsToo = func(*http.Request) (string, error) { return "x", errors.New("other cause") }
)

func TestFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys []keyfunc.Func
		want string
		err  error
	}{
		{"one", []keyfunc.Func{says("a")}, "a", nil},
		{"the first", []keyfunc.Func{says("a"), says("b")}, "a", nil},
		{"the first key that is not empty", []keyfunc.Func{says(""), says(""), says("c"), says("d")}, "c", nil},
		{"all empty", []keyfunc.Func{says(""), says("")}, "", nil},
		{"an error ends it", []keyfunc.Func{says(""), fails, says("c")}, "", errCause},
		{"an error behind is not met", []keyfunc.Func{says("a"), fails}, "a", nil},
	} {
		if got, err := keyfunc.First(tt.keys...)(request("")); got != tt.want || err != tt.err {
			t.Errorf("%s: got %q, %v; want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys []keyfunc.Func
		want string
		err  error
	}{
		{"one", []keyfunc.Func{says("a")}, "join:a", nil},
		{"two", []keyfunc.Func{says("a"), says("b")}, "join:a|b", nil},
		{"their order counts", []keyfunc.Func{says("b"), says("a")}, "join:b|a", nil},
		{"an empty key among them", []keyfunc.Func{says(""), says("b"), says("")}, "join:|b|", nil},
		{"all empty", []keyfunc.Func{says(""), says("")}, "", nil},
		{"separators", []keyfunc.Func{says("a|b"), says("%7C")}, "join:a%7Cb|%257C", nil},
		{"any bytes", []keyfunc.Func{says("{a}\x00\r\n"), says("\xff:")}, "join:{a}\x00\r\n|\xff:", nil},
		{"nested", []keyfunc.Func{keyfunc.Join(says("a"), says("b")), says("c")}, "join:join:a%7Cb|c", nil},
		{"an error ends it", []keyfunc.Func{says("a"), fails, failsToo}, "", errCause},
	} {
		if got, err := keyfunc.Join(tt.keys...)(request("")); got != tt.want || err != tt.err {
			t.Errorf("%s: got %q, %v; want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
}

// A key that is returned with an error is ignored.
func TestErrorHasNoKey(t *testing.T) {
	for name, key := range map[string]keyfunc.Func{
		"First": keyfunc.First(failsToo), "Join": keyfunc.Join(failsToo), "IPv6Prefix": keyfunc.IPv6Prefix(48, failsToo),
	} {
		if got, err := key(request("")); got != "" || err == nil {
			t.Errorf("%s: got %q, %v; want an error alone", name, got, err)
		}
	}
}

// As keeps errors and anonymous requests, and no key of it equals one of another kind.
func TestAs(t *testing.T) {
	id := func(key string) string { return strings.TrimPrefix(strings.TrimPrefix(key, "sub:"), "key:") }
	for _, test := range []struct {
		key  keyfunc.Func
		want string
		err  bool
	}{
		{says("sub:7"), "user:7", false},
		{says("key:7"), "user:7", false},
		{says("key:ip:192.0.2.7"), "user:ip:192.0.2.7", false},
		{says("sub:"), "", false},
		{says(""), "", false},
		{failsToo, "", true},
	} {
		got, err := keyfunc.As("user", test.key, id)(request(""))
		if got != test.want || (err != nil) != test.err {
			t.Errorf("got %q, %v; want %q, error: %t", got, err, test.want, test.err)
		}
	}
}
