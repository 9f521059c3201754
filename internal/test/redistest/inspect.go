package redistest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Calls is how often a server has run a command since [ResetStats].
func Calls(t testing.TB, c *redis.Client, command string) int64 {
	t.Helper()
	return int64(Stat(t, c, "commandstats", "cmdstat_"+command+":calls="))
}

// Stat is the number that follows the text in a section of INFO, or 0.
func Stat(t testing.TB, c *redis.Client, section, text string) (n int) {
	t.Helper()
	for line := range strings.Lines(c.Info(context.Background(), section).Val()) {
		if rest, ok := strings.CutPrefix(line, text); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
				t.Fatalf("INFO %s has %q: %v", section, line, err)
			}
		}
	}
	return n
}

// ResetStats has a server count from 0.
func ResetStats(t testing.TB, c *redis.Client) {
	t.Helper()
	if err := c.ConfigResetStat(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// Keys are those with the prefix, on all servers of the client.
func Keys(t testing.TB, client redis.UniversalClient, prefix string) []string {
	t.Helper()
	var mu sync.Mutex
	var keys []string
	scan := func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			keys = append(keys, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}

	ctx, err := context.Background(), error(nil)
	switch c := client.(type) {
	case *redis.Client:
		err = scan(ctx, c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, scan)
	case *redis.Ring:
		err = c.ForEachShard(ctx, scan)
	default:
		err = fmt.Errorf("cannot scan a %T", client)
	}

	if err != nil {
		t.Fatal(err)
	}
	return keys
}
