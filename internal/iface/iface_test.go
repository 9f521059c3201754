package iface

import "testing"

type pointer struct{ _ int }

type slice []int

func TestIsNil(t *testing.T) {
	for _, test := range []struct {
		v    any
		want bool
	}{
		{nil, true}, {(*pointer)(nil), true}, {new(pointer), false}, {pointer{}, false}, {slice(nil), false},
	} {
		if got := IsNil(test.v); got != test.want {
			t.Errorf("%T(%v): got %t; want %t", test.v, test.v, got, test.want)
		}
	}
}

func TestSame(t *testing.T) {
	p := new(pointer)
	for _, test := range []struct {
		a, b any
		want bool
	}{
		{p, p, true}, {p, new(pointer), false}, {1, 1, true}, {1, int64(1), false}, {p, nil, false},
		{slice{1}, slice{1}, false}, // == would panic
	} {
		if got := Same(test.a, test.b); got != test.want {
			t.Errorf("%v and %v: got %t; want %t", test.a, test.b, got, test.want)
		}
	}
}
