package rediskit

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Reply accepts a list of exactly n integers, or a single integer if n is 1, and nothing else.
func FuzzReply(f *testing.F) {
	for shape := range byte(9) {
		f.Add([]byte{shape}, 1)
		f.Add([]byte{6, 0, shape}, 2)
		f.Add([]byte{6, shape, shape, shape}, 3)
	}

	f.Fuzz(func(t *testing.T, shape []byte, n int) {
		if n < 0 || n > 100 {
			return
		}
		v, integers := build(shape)
		cmd := redis.NewCmd(context.Background())
		cmd.SetVal(v)
		reply, err := Reply(cmd, n)
		if good := integers == n && n >= 0; (err == nil) != good {
			t.Errorf("%#v for %d: got %v, %v; want an error: %v", v, n, reply, err, !good)
		}
		if err == nil && len(reply) != n {
			t.Errorf("%#v: got %d numbers; want %d", v, len(reply), n)
		}
	})
}

// build makes a reply of a description. It returns the number of integers, or -1 if there are other
// items.
func build(shape []byte) (v any, integers int) {
	scalar := func(b byte) any {
		switch b % 6 {
		case 0:
			return int64(b)
		case 1:
			return float64(b)
		case 2:
			return string(b)
		case 3:
			return nil
		case 4:
			return b%2 == 0
		default:
			return []any{int64(b)}
		}
	}

	if len(shape) == 0 {
		return nil, -1
	}
	if shape[0] != 6 {
		return scalar(shape[0]), listOfOne(shape[0])
	}
	list := make([]any, 0, len(shape))
	for _, b := range shape[1:] {
		list = append(list, scalar(b))
		if b%6 != 0 {
			integers = -1 - len(shape)
		}
		integers++
	}

	return list, max(integers, -1)
}

// listOfOne returns the count of a single integer, or of a list.
func listOfOne(b byte) int {
	if b%6 == 5 || b%6 == 0 {
		return 1
	}
	return -1
}
