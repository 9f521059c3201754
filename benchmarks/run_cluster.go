package main

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// manyCallers keep all servers busy.
const manyCallers = 256

// onRing ends the names of contestants whose keys are on a Ring.
const onRing = " on a Ring of three"

// crowd is how many times the callers a contestant on the Ring has: as many for each
// server as one Redis has. crowded ends its name.
const crowd = 3

var crowded = fmt.Sprintf(", %d callers", crowd*manyCallers)

// runCluster compares checks on a cluster of three masters with a replica each.
func runCluster(ctx context.Context, b *bench) error {
	b.say("starting a cluster of six nodes")
	return withServers(func(t testing.TB) error {
		cs, err := asserted(sixNodes(t), roomy, newOurs, newRedisRate, newGoRedisSetAP)
		if err != nil {
			return err
		}
		defer closeAll(cs)
		b.say("cluster, %s: callers %d", keysName(manyKeys), manyCallers)
		b.cluster, err = b.several(ctx, cs)
		return err
	})
}

// runRing compares checks on a Ring with those on one Redis.
func runRing(ctx context.Context, b *bench) error {
	return withServers(func(t testing.TB) error {
		cs, err := asserted(b.redis, roomy, newOurs)
		if err != nil {
			return err
		}
		defer closeAll(cs)
		ring, err := asserted(ringOfThree(t), roomy, newOurs, newOurs)
		if err != nil {
			return err
		}
		defer closeAll(ring)
		ring[0].name += onRing
		ring[1].name += onRing + crowded
		ring[1].crowd = crowd
		b.say("Ring, %s: callers %d", keysName(manyKeys), manyCallers)
		b.ring, err = b.several(ctx, append(cs, ring...))
		return err
	})
}

func (b *bench) several(ctx context.Context, cs []contestant) (samples, error) {
	return round(ctx, cs, b.roundsOr(8, 4), manyCallers, b.slice(200*time.Millisecond, 100*time.Millisecond), subjects(manyKeys))
}
