// Package iface looks at the values in interfaces.
package iface

import "reflect"

// IsNil reports whether v is nil or holds a nil pointer.
func IsNil(v any) bool {
	p := reflect.ValueOf(v)
	return v == nil || p.Kind() == reflect.Pointer && p.IsNil()
}

// Same reports whether a == b, and false for values that == does not support.
func Same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
