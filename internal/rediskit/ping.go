package rediskit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// pingTimeout bounds a Ping whose context has no deadline. A new TLS connection takes longer than
// the Timeout of a store.
const pingTimeout = 2 * time.Second

// ConnOf returns what is common to all connections of a client, and the addresses of its servers.
func ConnOf(client redis.UniversalClient) (c Conn, addresses string) {
	switch cl := client.(type) {
	case *redis.Client: // also of a failover client
		return c, cl.Options().Addr
	case *redis.ClusterClient:
		return Conn{Cluster: true}, strings.Join(cl.Options().Addrs, ",")
	}
	return c, ""
}

// Ping calls a function for each server that holds keys: a single server, the masters of a cluster,
// the shards of a ring. The key is on that server and is the key of no bucket. The error has a
// sentence for each server that fails.
func Ping(ctx context.Context, client redis.UniversalClient, prefix string, call func(ctx context.Context, server redis.UniversalClient, key string) error) error {
	within := pingTimeout
	if deadline, ok := ctx.Deadline(); ok {
		within = max(0, time.Until(deadline).Round(time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	conn, addresses := ConnOf(client)
	explain := func(server string, err error) error {
		cause := err
		// Once the time is up, the error only says where the client was.
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cause = NoAnswer(within)
		}
		problem := Diagnose(cause, conn)
		if err == nil || problem.Code == "" {
			return err
		}
		return &ServerError{Server: server, Problem: problem, Err: err}
	}

	var list []server
	// Some clients ignore a deadline.
	err := await.Call(ctx, func() (err error) { list, err = servers(ctx, client, prefix); return err })
	if err != nil {
		return explain(cmp.Or(addresses, "each address of the ring"), err)
	}

	// Each server by itself: one that is wrong must not hide behind the others.
	errs := make(chan error, len(list))
	for _, s := range list {
		go func() {
			_, address := ConnOf(s.client)
			err := await.Call(ctx, func() error { return call(ctx, s.client, s.key) })
			errs <- explain(cmp.Or(address, "the client's address"), err)
		}()
	}
	for range list {
		err = errors.Join(err, <-errs)
	}
	return err
}

// A server has a key that is on it and is the key of no bucket.
type server struct {
	client redis.UniversalClient
	key    string
}

// servers returns the servers of a client that hold keys.
func servers(ctx context.Context, client redis.UniversalClient, prefix string) (list []server, err error) {
	switch c := client.(type) {
	case *redis.ClusterClient:
		known := make(map[*redis.Client]bool)
		// No key is known for a slot, so keys are tried. A master with a hundredth of the slots has one in a hundred.
		for i := range 10_000 {
			key := fmt.Sprintf("%s{ping%d}", prefix, i)
			master, err := c.MasterForKey(ctx, key)
			if err != nil {
				return nil, err
			}
			if !known[master] {
				known[master] = true
				list = append(list, server{master, key})
			}
		}
		return list, nil

	case *redis.Ring:
		var mu sync.Mutex
		err := c.ForEachShard(ctx, func(_ context.Context, shard *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, server{shard, prefix + "{ping}"})
			return nil
		})
		if err == nil && len(list) == 0 { // all were found down, so none was asked
			err = c.Ping(ctx).Err()
		}
		return list, err
	}
	return []server{{client, prefix + "{ping}"}}, nil
}

// IsClosed reports whether an error means that the server has closed the connection. See [WhyClosed].
func IsClosed(err error) bool {
	return err != nil && !IsReply(err) && says("EOF", "reset", "broken pipe")(err)
}

// WhyClosed returns the reply of a server that requires a password, if that is why it has
// closed a connection with this error, and otherwise the error. A server may close it while
// a long command is written, and then the client does not read the reply.
func WhyClosed(c *redis.Client, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	reply := Call(func() error { return c.Ping(ctx).Err() })
	if Diagnose(reply, Conn{}).Code == diag.RedisAuth {
		return reply
	}
	return err
}
