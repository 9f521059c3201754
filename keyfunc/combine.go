package keyfunc

import (
	"fmt"
	"net/http"
	"slices"
)

// First is the answer of the first of keys that knows somebody: those after it
// are not asked. An error ends it with that error, as the one who could not be
// told might have been the right one. If none knows anybody, nobody in
// particular is the answer.
//
//	keyfunc.First(subject, keyfunc.RemoteAddr) // users by name, all others by address
//
// First panics if there are no keys or one is nil.
func First(keys ...Func) Func {
	keys = slices.Clone(keys)
	mustHave("First", keys...)
	return func(r *http.Request) (string, error) {
		for _, key := range keys {
			k, err := key(r)
			if err != nil {
				return "", err
			}
			if k != "" {
				return k, nil
			}
		}
		return "", nil
	}
}

// Join counts all of keys together: two requests share a bucket if every one of
// keys gives the same answer for both. An answer of nobody takes part like any
// other; only if all are nobody, Join is. An error ends it with that error.
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route) // each client on each route
//
// Each key function multiplies the buckets, so that a client that can choose
// one of the answers chooses its buckets: join with a [Route], not with a path.
//
// Join panics if there are no keys or one is nil.
func Join(keys ...Func) Func {
	keys = slices.Clone(keys)
	mustHave("Join", keys...)
	return func(r *http.Request) (string, error) {
		answers := make([]string, len(keys))
		somebody := false
		for i, key := range keys {
			k, err := key(r)
			if err != nil {
				return "", err
			}
			answers[i] = k
			somebody = somebody || k != ""
		}
		if !somebody {
			return "", nil
		}
		return encode("join:", answers...), nil
	}
}

// Const counts everybody in one bucket, "const:" and s: a limit for the server
// as a whole, or, at the end of [First], for all who are left.
func Const(s string) Func {
	key := "const:" + s
	return func(*http.Request) (string, error) { return key, nil }
}

// mustHave panics, in the name of the constructor, without keys or on a nil one.
func mustHave(constructor string, keys ...Func) {
	if len(keys) == 0 {
		panic("keyfunc." + constructor + ": no key functions; want one or more")
	}
	for i, key := range keys {
		if key == nil {
			panic(fmt.Sprintf("keyfunc.%s: key function %d of %d is nil", constructor, i+1, len(keys)))
		}
	}
}
