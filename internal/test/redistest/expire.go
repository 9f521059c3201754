package redistest

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ExpireTime is the time at which a key expires, since 1970 in whole milliseconds: 0
// if it never expires, and [redis.Nil] if there is no such key. It is what
// PEXPIRETIME returns, on Redis before 7.0 too, which does not have that command. Of an embedded
// Redis it is exact only while its clock stands still, see [AnyStill].
func ExpireTime(ctx context.Context, c redis.Cmdable, key string) (time.Duration, error) {
	for range 1000 {
		// PTTL counts from a moment between the two TIMEs.
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
