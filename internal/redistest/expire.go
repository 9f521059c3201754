package redistest

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ExpireTime is the moment at which a key expires, as the time since 1970 in
// whole milliseconds; [redis.Nil] where there is no such key, and 0 for one that
// never expires. It is what PEXPIRETIME answers, also on Redis before 7.0, which
// does not have that command.
func ExpireTime(ctx context.Context, c redis.Cmdable, key string) (time.Duration, error) {
	for range 1000 {
		// What PTTL says counts from a moment between the two TIMEs.
		pipe := c.Pipeline()
		before, left, after := pipe.Time(ctx), pipe.PTTL(ctx, key), pipe.Time(ctx)
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, err
		}
		switch ms := before.Val().UnixMilli(); {
		case left.Val() == -2:
			return 0, redis.Nil
		case left.Val() == -1:
			return 0, nil
		case ms == after.Val().UnixMilli():
			return time.Duration(ms)*time.Millisecond + left.Val(), nil
		}
	}
	return 0, errors.New("no two commands ran within one millisecond")
}
