package keyfunc

import (
	"fmt"
	"net/http"
	"slices"
)

// First returns the first key that is not empty; later functions are not called. An
// error ends it with that error, since the failed function might have had a key. If
// all keys are empty, the request is anonymous.
//
//	keyfunc.First(subject, keyfunc.RemoteAddr) // users by name, others by address
//
// First panics if there are no functions or one is nil.
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

// Join combines keys: two requests share a bucket if all functions return equal keys
// for both. An empty key is a key like any other here, but if all are empty, the
// request is anonymous. An error ends it with that error.
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route) // each client on each route
//
// If a client can choose one of the keys, it can choose its bucket: join with a
// [Route], not with a path.
//
// Join panics if there are no functions or one is nil.
func Join(keys ...Func) Func {
	keys = slices.Clone(keys)
	mustHave("Join", keys...)
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		anonymous := true
		for i, key := range keys {
			k, err := key(r)
			if err != nil {
				return "", err
			}
			parts[i] = k
			anonymous = anonymous && k == ""
		}
		if anonymous {
			return "", nil
		}
		return encode("join:", parts...), nil
	}
}

// Const returns the key "const:" and s for every request: for a limit on the server as
// a whole or, at the end of [First], on all remaining requests.
func Const(s string) Func {
	key := "const:" + s
	return func(*http.Request) (string, error) { return key, nil }
}

// mustHave panics with the constructor's name if there are no functions or one is nil.
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
