package redistest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Every master takes a write at once, and when one is killed its replica takes
// its slots over with the data in them.
func TestCluster(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := StartCluster(t)
	t.Logf("formed in %v", time.Since(start))
	ctx := t.Context()

	keys := make(map[string]string) // one key for each master's address
	for i := 0; len(keys) < masters; i++ {
		key := fmt.Sprintf("key-%d", i)
		m, err := c.Client().MasterForKey(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		keys[m.Options().Addr] = key
	}
	for i, s := range c.Nodes[:masters] {
		key, ok := keys[s.Addr]
		if !ok {
			t.Fatalf("master %d at %s serves none of %v", i, s.Addr, keys)
		}
		if err := c.Client().Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatalf("SET %s on master %d: %v", key, i, err)
		}
	}

	dead, heir := c.Nodes[0], c.Nodes[masters]
	key := keys[dead.Addr]
	// Only what has reached the replica survives.
	dead.AwaitReplicas(1)
	dead.Kill()
	Eventually(t, 20*time.Second, "the replica to take over", func() bool {
		c.Client().ReloadState(ctx)
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return c.Client().Set(ctx, key+"-probe{"+key+"}", 1, 0).Err() == nil
	})
	if got, err := c.Client().Get(ctx, key).Result(); err != nil || got != "0" {
		t.Errorf("GET %s after the failover: got %q, %v; want %q", key, got, err, "0")
	}
	if m, err := c.Client().MasterForKey(ctx, key); err != nil || m.Options().Addr != heir.Addr {
		t.Errorf("the master of %s is %v, %v; want the replica at %s", key, m, err, heir.Addr)
	}
}
