package redistest

import (
	"context"
	"testing"
	"time"
)

// When the master is killed the sentinels agree on a replica that has its data,
// and the client follows.
func TestSentinel(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := StartSentinel(t)
	t.Logf("formed in %v", time.Since(start))
	ctx := t.Context()

	old := s.Master()
	if old != s.Servers[0] {
		t.Fatalf("the master is %s; want %s", old.Addr, s.Servers[0].Addr)
	}
	if err := s.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	old.AwaitReplicas(replicas)
	for _, r := range s.Replicas() {
		if got, err := r.Client().Get(ctx, "k").Result(); err != nil || got != "v" {
			t.Errorf("GET on the replica %s: got %q, %v; want v", r.Addr, got, err)
		}
	}

	start = time.Now()
	old.Kill()
	Eventually(t, 20*time.Second, "a new master", func() bool { return s.Master() != old })
	Eventually(t, 20*time.Second, "the client to follow", func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return s.Client().Set(ctx, "k2", "v", 0).Err() == nil
	})
	t.Logf("failed over in %v", time.Since(start))
	if got, err := s.Master().Client().Get(ctx, "k").Result(); err != nil || got != "v" {
		t.Errorf("GET on the new master: got %q, %v; want v", got, err)
	}
}

// A password given once is known to the replicas, the sentinels and the client.
func TestSentinelPassword(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t, "--requirepass", "secret")
	if err := s.Client().Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}
