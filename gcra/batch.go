package gcra

import (
	"context"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// batch is what leaves together for one server. On a single Redis it is one
// script whatever its keys; on a cluster one script for each subject.
type batch struct {
	scripts []script // the first n are in use, the others keep their memory
	n       int
	homes   map[string]int // home of a subject: its place among the scripts
	fares   int
	bytes   int

	watchdog watchdog
	panicked error // what a hook of the client's has done
}

// A batch is bounded, so that it never holds Redis up for long. A ride goes
// whole, and alone where it is larger than that.
const (
	maxFares = 512
	maxBytes = 64 << 10
)

var batches = sync.Pool{New: func() any { return &batch{homes: make(map[string]int)} }}

func (b *batch) reset() {
	for i := range b.scripts[:b.n] {
		b.scripts[i].reset()
	}
	clear(b.homes)
	b.n, b.fares, b.bytes, b.panicked = 0, 0, 0, nil
}

// add takes a ride along, and reports false when it must wait for the next.
func (b *batch) add(rd *ride, whole bool) bool {
	size := 0
	for i := range rd.fares {
		size += len(rd.fares[i].key)
	}
	if b.n > 0 && (b.fares+len(rd.fares) > maxFares || b.bytes+size > maxBytes) {
		return false
	}
	home := ""
	if !whole {
		home = tag(rd.fares[0].key)
	}
	i, known := b.homes[home]
	if !known {
		i = b.n
		if i == len(b.scripts) {
			b.scripts = append(b.scripts, newScript())
		}
		b.homes[home] = i
		b.n++
	}
	if !b.scripts[i].add(rd) {
		return false
	}
	b.fares += len(rd.fares)
	b.bytes += size
	return true
}

// size is how many rides ride along.
func (b *batch) size() (n int) {
	for i := range b.scripts[:b.n] {
		n += len(b.scripts[i].rides)
	}
	return n
}

// rides are all that ride along.
func (b *batch) rides() iter.Seq[*ride] {
	return func(yield func(*ride) bool) {
		for i := range b.scripts[:b.n] {
			for _, rd := range b.scripts[i].rides {
				if !yield(rd) {
					return
				}
			}
		}
	}
}

// run sends the batch in one trip and waits for the answers.
func (b *batch) run(ctx context.Context, client redis.UniversalClient) {
	if b.n == 1 {
		b.scripts[0].run(ctx, client)
		return
	}
	pipe := client.Pipeline()
	for i := range b.scripts[:b.n] {
		s := &b.scripts[i]
		_ = pipe.Process(ctx, s.command(ctx, s.evalsha())) // queues; the answer is the command's
	}
	_, _ = pipe.Exec(ctx)     // each command has its own error
	var again redis.Pipeliner // one connection for all: others might have to be dialled
	for i := range b.scripts[:b.n] {
		if s := &b.scripts[i]; s.unknown() {
			if again == nil {
				again = client.Pipeline()
			}
			_ = again.Process(ctx, s.command(ctx, s.eval()))
		}
	}
	if again != nil {
		_, _ = again.Exec(ctx)
	}
	var moving sync.WaitGroup
	for i := range b.scripts[:b.n] {
		if s := &b.scripts[i]; redis.HasErrorPrefix(s.cmd.Err(), "TRYAGAIN") {
			moving.Go(func() { s.sendAgain(ctx, client) })
		}
	}
	moving.Wait()
}

// settle hands the answers to the rides, and returns what went wrong with the
// scripts, an outage before anything else.
func (b *batch) settle() (err error) {
	for i := range b.scripts[:b.n] {
		s := &b.scripts[i]
		s.settle(b.panicked)
		if err == nil || rediskit.Down(s.err) {
			err = s.err
		}
	}
	return err
}
