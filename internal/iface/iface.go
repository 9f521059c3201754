// Package iface looks at the values in interfaces, and names what a store or its error may have beyond [gcra.Store].
package iface

import (
	"errors"
	"reflect"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A LimitChecker is a store that does not keep every valid limit. [gcra.Store] documents the method.
type LimitChecker interface {
	CheckLimit(l gcra.Limit) error
}

// A Publisher is a store that keeps a text about the policies of each limiter for operators. text returns what they are
// now, or "" once the limiter is gone. [redisstore.Store] is one.
type Publisher interface {
	Publish(limiter any, text func() string)
}

// A LoggedError is an error of a store that the store may log by itself: nobody logs it again if Logged returns true.
type LoggedError interface {
	error
	Logged() bool
}

// ErrRefused is an error of a Key that denies the request as a ban does: a body of a sign-in that names no account.
var ErrRefused = errors.New("the request is refused")

// IsNil reports whether v is nil or holds a nil pointer.
func IsNil(v any) bool {
	p := reflect.ValueOf(v)
	return v == nil || p.Kind() == reflect.Pointer && p.IsNil()
}

// Same reports whether a == b, and false for values that == does not support.
func Same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
