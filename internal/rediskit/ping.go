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
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, pingTimeout)
		defer cancel()
	}

	p := ping{prefix: prefix, call: call}
	p.conn, p.address = ConnOf(client)
	deadline, _ := ctx.Deadline()
	p.bound = max(0, time.Until(deadline).Round(time.Millisecond))

	err := await.Call(ctx, func() error { return p.all(ctx, client) })
	if _, explained := errors.AsType[*ServerError](err); !explained && errors.Is(err, context.DeadlineExceeded) {
		return p.explain(ctx, p.address, err) // some clients ignore a deadline
	}
	return err
}

type ping struct {
	prefix  string
	call    func(ctx context.Context, server redis.UniversalClient, key string) error
	conn    Conn
	address string
	bound   time.Duration
}

func (p *ping) all(ctx context.Context, client redis.UniversalClient) error {
	var mu sync.Mutex
	var errs []error
	one := func(ctx context.Context, server redis.UniversalClient, key string) {
		if err := p.call(ctx, server, key); err != nil {
			_, address := ConnOf(server)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, p.explain(ctx, cmp.Or(address, "the client's address"), err))
		}
	}

	// Each server by itself: one that is wrong must not hide behind the others.
	key := p.prefix + "{ping}"
	switch c := client.(type) {
	case *redis.ClusterClient:
		err := c.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
			if key, ok := p.keyOn(ctx, c, server); ok {
				one(ctx, server, key)
			}
			return nil
		})
		if err != nil {
			return p.explain(ctx, p.address, err)
		}

	case *redis.Ring:
		err := c.ForEachShard(ctx, func(ctx context.Context, server *redis.Client) error {
			one(ctx, server, key)
			return nil
		})
		if err == nil && c.Len() == 0 { // all were found down, so none was asked
			if err = c.Ping(ctx).Err(); err != nil {
				err = p.explain(ctx, "each address of the ring", err)
			}
		}
		errs = append(errs, err)

	default:
		one(ctx, client, key)
	}
	return errors.Join(errs...)
}

// keyOn returns a key that is on a master, or false for a master without slots.
func (p *ping) keyOn(ctx context.Context, c *redis.ClusterClient, server *redis.Client) (key string, ok bool) {
	// No key is known for a slot, so keys are tried. A master with a hundredth of the slots has one in a hundred.
	for i := range 10_000 {
		key := fmt.Sprintf("%s{ping%d}", p.prefix, i)
		if owner, err := c.MasterForKey(ctx, key); err == nil && owner.Options().Addr == server.Options().Addr {
			return key, true
		}
	}
	return "", false
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

func (p *ping) explain(ctx context.Context, server string, err error) error {
	cause := err
	// Once the context has ended, the error only says where the client was.
	if ctx.Err() != nil {
		cause = NoAnswer(p.bound)
	}
	problem := Diagnose(cause, p.conn)
	if problem.Code == "" {
		return err
	}
	return &ServerError{Server: server, Problem: problem, Err: err}
}
