package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What a client and the server see of each fault, and that all is well after it. Tests that
// wait for a fault to show would pass without it, so it must be there.
func TestProxy(t *testing.T) {
	server := Start(t)
	const d = 40 * time.Millisecond
	for _, tt := range []struct {
		name     string
		fault    func(*Proxy)
		answered bool
		runs     bool
		least    time.Duration // that an answer takes
	}{
		{"pass", (*Proxy).Pass, true, true, 0},
		{"delay", func(p *Proxy) { p.Delay(d) }, true, true, d},
		{"delay between", func(p *Proxy) { p.DelayBetween(d, 2*d) }, true, true, d},
		{"resend, in both directions", func(p *Proxy) { p.Resend(1, d) }, true, true, 2 * d},
		{"bandwidth", func(p *Proxy) { p.Bandwidth(500) }, true, true, d}, // a request of more than 20 bytes
		{"reset", (*Proxy).Reset, true, true, 0},                          // the client connects again

		{"blackhole", (*Proxy).Blackhole, false, false, 0},
		{"refuse", (*Proxy).Refuse, false, false, 0},
		{"half-open", (*Proxy).HalfOpen, false, false, 0},
		{"lost request", func(p *Proxy) { p.Lose(1, 0) }, false, false, 0},
		{"lost reply", func(p *Proxy) { p.Lose(0, 1) }, false, true, 0},
		{"cut reply", func(p *Proxy) { p.CutAfter(1) }, false, true, 0},
		{"dropped reply", func(p *Proxy) { p.DropReply(1) }, false, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := NewProxy(t, server.Addr)
			c := through(t, p)
			if err := c.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if !tt.answered {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second/2)
			}
			defer cancel()
			tt.fault(p)
			start := time.Now()
			err := c.RPush(ctx, tt.name, 1).Err()
			if took := time.Since(start); (err == nil) != tt.answered || took < tt.least {
				t.Errorf("got %v after %v; want an answer: %t, after %v", err, took, tt.answered, tt.least)
			}

			p.Pass()
			if err := c.Ping(t.Context()).Err(); err != nil {
				t.Errorf("after it: got %v", err)
			}
			if n := server.Client().LLen(t.Context(), tt.name).Val(); (n == 1) != tt.runs {
				t.Errorf("the command ran %d times; want that it ran: %t", n, tt.runs)
			}
		})
	}
}

// through is a client of the proxy that tries everything once. Called by one goroutine it
// keeps to one connection.
func through(t *testing.T, p *Proxy) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: p.Addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: noMaintenance(),
	})
	closeAtCleanup(t, c)
	return c
}
