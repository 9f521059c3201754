package redistest

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestExpireTime(t *testing.T) {
	t.Run("Redis", func(t *testing.T) { testExpireTime(t, Start(t).Client()) })
	t.Run("embedded, still", func(t *testing.T) {
		testExpireTime(t, startEmbedded(t, time.Now().Truncate(time.Millisecond)))
	})
}

func testExpireTime(t *testing.T, c *redis.Client) {
	ctx := t.Context()
	if _, err := ExpireTime(ctx, c, "none"); !errors.Is(err, redis.Nil) {
		t.Errorf("of a key that is not there: got %v; want %v", err, redis.Nil)
	}
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if at, err := ExpireTime(ctx, c, "k"); at != 0 || err != nil {
		t.Errorf("of a key without expiry: got %v, %v; want 0", at, err)
	}
	for range 200 {
		want := time.UnixMilli(time.Now().Add(time.Hour).UnixMilli())
		if err := c.PExpireAt(ctx, "k", want).Err(); err != nil {
			t.Fatal(err)
		}
		if at, err := ExpireTime(ctx, c, "k"); err != nil || at.Milliseconds() != want.UnixMilli() {
			t.Fatalf("got %v, %v; want %v", at.Milliseconds(), err, want.UnixMilli())
		}
	}
}
