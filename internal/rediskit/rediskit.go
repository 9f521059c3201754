// Package rediskit is what the stores on Redis have in common: the form of
// their keys, scripts that run once, and replies that are as expected.
package rediskit

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Once is a command that must not run twice: a lost reply does not mean that
// nothing was charged. go-redis would otherwise send it up to four times.
type Once struct{ *redis.Cmd }

// NoRetry tells go-redis not to send the command again.
func (Once) NoRetry() bool { return true }

// ErrReply is wrapped by errors about replies that the script does not give.
var ErrReply = errors.New("unexpected reply to the script")

// Reply checks that the command has a list of n integers, a single one of which
// may come without the list. Servers and proxies that are almost Redis have been
// seen to answer otherwise.
func Reply(cmd *redis.Cmd, n int) ([]int64, error) {
	v, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if one, ok := v.(int64); ok && n == 1 {
		return []int64{one}, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: %T; want a list", ErrReply, v)
	}
	if len(list) != n {
		return nil, fmt.Errorf("%w: %d items; want %d", ErrReply, len(list), n)
	}
	reply := make([]int64, n)
	for i, item := range list {
		if reply[i], ok = item.(int64); !ok {
			return nil, fmt.Errorf("%w: item %d is %T; want an integer", ErrReply, i, item)
		}
	}
	return reply, nil
}
