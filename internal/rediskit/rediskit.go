// Package rediskit is shared by the stores on Redis: the format of keys (key.go), scripts that are
// sent once (send.go) and their replies (rediskit.go), and errors of servers in plain words
// (problem.go, answers.go, ping.go), and of a Config (config.go).
package rediskit

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Once is a command that go-redis does not retry. If the reply is lost, the script may have charged;
// by default go-redis would send it up to four times.
type Once struct{ *redis.Cmd }

// NoRetry implements an interface of go-redis.
func (Once) NoRetry() bool { return true }

// ErrReply is wrapped by errors about replies that are not of the script's form.
var ErrReply = errors.New("unexpected reply to the script")

// ErrKeysApart means that a server runs a script on another server than it keeps one of the script's keys on, although
// they all have one hash tag.
var ErrKeysApart = errors.New("keys with one hash tag are on different servers")

// Reply returns the reply of n integers, or an error that wraps [ErrReply]. A single integer may
// come without a list. Proxies and servers that are almost Redis have sent other replies.
func Reply(cmd *redis.Cmd, n int) ([]int64, error) {
	v, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if one, ok := v.(int64); ok && n == 1 {
		return []int64{one}, nil
	}

	list, ok := v.([]any)
	reply := make([]int64, n)
	for i := 0; ok && i < min(n, len(list)); i++ {
		reply[i], ok = list[i].(int64)
	}
	if !ok || len(list) != n {
		return nil, fmt.Errorf("%w: %T, %d items; want a list of %d integers", ErrReply, v, len(list), n)
	}
	return reply, nil
}
