package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// pool is the workers of this process.
type pool struct {
	turns   turns.Turns
	workers int
	tasks   int // in all; 0 is no end
	work    time.Duration
	verbose bool // print a line for each task
	out     *lines

	taken, done, waiting, working atomic.Int64

	// Turns and errors arrive out of order. A turn that was asked for before the last error
	// does not show that turns come again, nor does such an error show that they stop.
	mu     sync.Mutex
	failed time.Time // when the store last returned an error; zero while turns come
	back   time.Time // when turns came again
}

// run does the tasks. It returns when they are done or the context ends.
func (p *pool) run(ctx context.Context) {
	began := time.Now()
	var workers sync.WaitGroup
	for n := range p.workers {
		workers.Go(func() { p.worker(ctx, n+1) })
	}

	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()

	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()

	for before := int64(0); ; {
		select {
		case <-ticks.C:
			done := p.done.Load()
			p.out.printf("%5.0fs  %s done, %d in the last second, %d waiting, %d working",
				time.Since(began).Seconds(), p.progress(), done-before, p.waiting.Load(), p.working.Load())
			before = done
		case <-ended:
			took := time.Since(began)
			word := "Finished"
			if ctx.Err() != nil {
				word = "Stopped"
			}
			p.out.printf("%s: %s done in %.1fs, %.1f a second.", word, p.progress(), took.Seconds(), float64(p.done.Load())/took.Seconds())
			return
		}
	}
}

// worker does tasks one by one, each in its turn.
func (p *pool) worker(ctx context.Context, n int) {
	for {
		task := p.taken.Add(1)
		if p.tasks > 0 && task > int64(p.tasks) || !p.turn(ctx) {
			return
		}
		if p.verbose {
			p.out.printf("%s  worker %d, task %d", time.Now().Format("15:04:05.000000"), n, task)
		}

		p.working.Add(1)
		finished := sleep(ctx, p.work) // the task; put your work here
		p.working.Add(-1)
		if !finished {
			return
		}
		p.done.Add(1)
	}
}

// turn waits for the next turn of all processes. It returns false if the context ends
// first. While the store fails there are no turns: without it the rate would be exceeded,
// and a task can wait.
func (p *pool) turn(ctx context.Context) bool {
	p.waiting.Add(1)
	defer p.waiting.Add(-1)

	for {
		asked := time.Now()
		err := p.turns.Wait(ctx)
		if err == nil {
			p.works(asked)
			return true
		}
		if ctx.Err() != nil {
			return false
		}

		p.fails(asked, err)
		if !sleep(ctx, time.Second) {
			return false
		}
	}
}

// fails notes an error, and prints the first since turns came.
func (p *pool) fails(asked time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed.IsZero() {
		if asked.Before(p.back) {
			return
		}
		p.out.printf("No turns until Redis works: %v", err)
	}
	p.failed = time.Now()
}

// works notes a turn, and prints the first since an error.
func (p *pool) works(asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.failed.IsZero() && asked.After(p.failed) {
		p.failed, p.back = time.Time{}, time.Now()
		p.out.printf("Turns come again.")
	}
}

func (p *pool) progress() string {
	if p.tasks == 0 {
		return fmt.Sprintf("%d tasks", p.done.Load())
	}
	return fmt.Sprintf("%d of %d tasks", p.done.Load(), p.tasks)
}

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// lines writes whole lines of several workers.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format+"\n", args...)
}
