package rediskit

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ping returns in time although the client ignores the context, and a canceled caller gets the
// context's error.
func TestPingIsBounded(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "192.0.2.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("not dialled")
	}})
	defer client.Close()
	release := make(chan struct{})
	defer close(release)
	hangs := func(context.Context, redis.UniversalClient, string) error { <-release; return nil }

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := Ping(ctx, client, "rl:", hangs)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "redis at 192.0.2.1:6379 does not answer: no answer within ") {
		t.Errorf("got %v; want that 192.0.2.1:6379 does not answer", err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := Ping(left, client, "rl:", hangs); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v; want %v", err, context.Canceled)
	}
}
