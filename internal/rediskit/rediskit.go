// Package rediskit is what the stores on Redis have in common: the form of
// their keys, and commands that are sent once.
package rediskit

import "github.com/redis/go-redis/v9"

// Once is a command that must not run twice: a lost reply does not mean that
// nothing was charged. go-redis would otherwise send it up to four times.
type Once struct{ *redis.Cmd }

// NoRetry tells go-redis not to send the command again.
func (Once) NoRetry() bool { return true }
