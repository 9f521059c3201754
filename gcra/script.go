package gcra

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed take.lua
var takeLua string

var takeSHA = func() string {
	sum := sha1.Sum([]byte(takeLua))
	return hex.EncodeToString(sum[:])
}()

// batch is one call of take.lua: any number of admissions.
type batch struct {
	args    []any          // EVALSHA, sha, number of keys, keys..., then room for the rest
	keys    map[string]int // key: its place among the keys
	demands []demand
	plan    []byte // see take.lua
}

const (
	flagLast   = 1
	flagShadow = 2
)

// add appends an admission.
func (b *batch) add(prefix string, charges []Charge, demands []demand) {
	if b.keys == nil {
		b.keys = make(map[string]int, len(charges))
		b.args = append(make([]any, 0, 3+len(charges)), "evalsha", takeSHA, 0)
	}
	for i := range charges {
		c := &charges[i]
		key := string(appendKey(nil, prefix, c.Subject, c.Policy))
		k, ok := b.keys[key]
		if !ok {
			k = len(b.keys)
			b.keys[key] = k
			b.args = append(b.args, key)
		}
		flags := byte(0)
		if c.Shadow {
			flags |= flagShadow
		}
		if i == len(charges)-1 {
			flags |= flagLast
		}
		b.plan = append(b.plan, byte(k>>8), byte(k), b.demand(demands[i]), flags)
	}
}

// demand returns the place of d, which many charges of a batch have in common.
func (b *batch) demand(d demand) byte {
	for i := range b.demands {
		if b.demands[i] == d {
			return byte(i)
		}
	}
	b.demands = append(b.demands, d)
	return byte(len(b.demands) - 1)
}

// once is a command that must not run twice: a lost reply does not mean that
// nothing was charged. go-redis would otherwise send it up to four times.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// run sends the batch and returns, for each charge, what take.lua replies.
func (b *batch) run(ctx context.Context, client redis.UniversalClient) ([]int64, error) {
	args := b.args
	args[2] = len(b.keys)
	args = append(args, b.plan)
	for _, d := range b.demands {
		args = append(args, strconv.FormatInt(d.inc, 10), strconv.FormatInt(d.room, 10), strconv.FormatInt(d.top, 10))
	}
	cmd := redis.NewCmd(ctx, args...)
	err := client.Process(ctx, once{cmd})
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// The server has restarted, was flushed or is new. EVAL runs the
		// script on the node that owns the keys and loads it there.
		args[0], args[1] = "eval", takeLua
		cmd = redis.NewCmd(ctx, args...)
		err = client.Process(ctx, once{cmd})
	}
	if err != nil {
		return nil, fmt.Errorf("gcra: redis: %w", err)
	}
	return readReply(cmd.Val(), len(b.plan)/4)
}

// readReply checks that v is what take.lua replies to n charges. Servers and
// proxies that are almost Redis have been seen to answer otherwise.
func readReply(v any, n int) ([]int64, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("gcra: redis: reply to the script is %T; want a list", v)
	}
	if len(list) != n {
		return nil, fmt.Errorf("gcra: redis: reply to the script has %d items; want %d", len(list), n)
	}
	reply := make([]int64, n)
	for i, item := range list {
		if reply[i], ok = item.(int64); !ok {
			return nil, fmt.Errorf("gcra: redis: item %d of the script's reply is %T; want an integer", i, item)
		}
	}
	return reply, nil
}
