package keyfunc

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// First returns the first key that is not empty, or the first error; later functions are not
// called. If all keys are empty, the request is anonymous.
//
//	keyfunc.First(subject, keyfunc.RemoteAddr) // users by name, others by address
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

// Join combines keys: two requests share a bucket if all functions return equal keys for both. If
// all are empty, the request is anonymous. An error ends it.
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route) // each client on each route
//
// Join no key that a client can choose, such as a path.
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

		// One key that knows the client is enough: the empty ones are parts like others.
		if anonymous {
			return "", nil
		}
		return encode("join:", parts...), nil
	}
}

// Const returns the key "const:" and s for every request: for a limit on all
// requests together or, at the end of [First], on all remaining ones.
func Const(s string) Func {
	key := "const:" + s
	return func(*http.Request) (string, error) { return key, nil }
}

// kinds are the kinds of this module's keys. A key of the caller's must never equal one of them.
var kinds = []string{"ip", "sub", "key", "own", "route", "const", "join"}

// As gives the keys of another function a kind of your own: kind, ":" and what id makes of the key,
// with its old kind. Two keys of one user then share a bucket:
//
//	keyfunc.As("user", keyfunc.First(subject, apiKey), userID) // "sub:issuer|7" and "key:7" are both "user:7"
//
// If id returns "", the request is anonymous. Count anonymous requests outside of it:
// First(As("user", users, userID), RemoteAddr). kind is a word of lower-case letters, digits and
// hyphens, and none of this package's kinds.
func As(kind string, key Func, id func(key string) string) Func {
	switch {
	case kind == "" || strings.ContainsFunc(kind, func(c rune) bool { return c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') }):
		panic(fmt.Sprintf(`keyfunc.As: kind %q is not a word of lower-case letters, digits and hyphens; want one such as "user"`, kind))
	// Under such a kind a client's key could equal one of another function.
	case slices.Contains(kinds, kind):
		panic(fmt.Sprintf(`keyfunc.As: kind %q is taken; want one of your own, such as "user"`, kind))
	case id == nil:
		panic("keyfunc.As: nil id; want a function that returns the text of the new key")
	}
	mustHave("As", key)

	return func(r *http.Request) (string, error) {
		k, err := key(r)
		if err != nil || k == "" {
			return "", err
		}

		text := id(k)
		if text == "" {
			return "", nil
		}
		return kind + ":" + text, nil
	}
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
