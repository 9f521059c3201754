// Package fleet lets operators change limits while servers run: each server follows the
// overrides and bans that the command ratelimit keeps in Redis.
//
//	store, err := redisstore.Open("redis://localhost:6379/0", redisstore.Config{})
//	overrides, err := fleet.New(ctx, fleet.Config{Store: store})
//	router.Use(ratelimit.New(ratelimit.Config{Store: store, Override: overrides.Find}, policies...))
//
// An operator then runs
//
//	ratelimit override set ip:192.0.2.7 none --for 1h --why "import of their data"
//	ratelimit ban ip:198.51.100.0/24 --for 1h
//
// Each override ends by the clock of the server, also while Redis is away: then the last
// known ones stay. Keep a copy by "ratelimit override list --json" in case Redis loses its data.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Config configures [New]. Use keyed literals: fields may be added.
type Config struct {
	// Store is in the Redis that the command writes to, with the Prefix that the command has;
	// SECURITY.md has its ACL. Only its client is used: end the context before you close it. Required.
	Store *redisstore.Store

	// Logger gets lines if overrides cannot be read or are broken. Nil means [slog.Default].
	Logger *slog.Logger
}

// timeout bounds a round trip, and interval is the time between two looks at Redis. Tests have others.
var timeout, interval = time.Second, 2 * time.Second

// Overrides are the overrides in force, safe for concurrent use.
type Overrides struct {
	client redis.UniversalClient
	key    string
	log    diag.Log

	known   atomic.Pointer[overrides.Table]
	version string // of the overrides in use, or ""
	unread  bool   // the last look has failed
}

// New reads the overrides, and then follows them until the context ends: it looks for a
// change about every two seconds. The error is about the Config. If Redis does not answer, New
// returns within about a second without overrides, and goes on trying in the background.
func New(ctx context.Context, cfg Config) (*Overrides, error) {
	if cfg.Store == nil {
		return nil, errors.New("fleet: Store is nil; want one in the Redis to which the command ratelimit writes")
	}
	client, prefix := cfg.Store.Client()
	o := &Overrides{client: client, key: overrides.Key(prefix), log: diag.Log{Logger: cfg.Logger}}
	o.known.Store(new(overrides.Table))
	o.refresh(ctx)
	go func() {
		for await.Sleep(ctx, interval) == nil {
			o.refresh(ctx)
		}
	}()
	return o, nil
}

// Find is [middleware.Config.Override]: it returns the override of a key in a policy. An override of
// the key itself goes before one of a network, and a longer prefix before a shorter. For one subject a
// ban wins over a limit, and a limit that is set for the policy over one for all policies.
func (o *Overrides) Find(policy, subject string) (found middleware.Override, ok bool) {
	e := o.known.Load().Find(policy, subject, time.Now())
	if e == nil || e.Limit == overrides.Default {
		return middleware.Override{}, false
	}
	return middleware.Override{Limit: e.Of, Name: e.Why, Banned: e.Limit == overrides.Banned, Until: e.Until}, true
}

// InForce returns how many overrides with a limit, and how many bans, this server follows
// now, for metrics, as package adapters/otel has them.
func (o *Overrides) InForce() (limits, bans int) {
	now := time.Now()
	for _, one := range o.known.Load().All {
		switch {
		case !now.Before(one.Until), one.Limit == overrides.Default: // it has ended, or is neither
		case one.Limit == overrides.Banned:
			bans++
		default:
			limits++
		}
	}
	return limits, bans
}

// refresh reads the overrides if they have changed. After an error the known ones stay.
func (o *Overrides) refresh(ctx context.Context) {
	fields, version, err := overrides.Read(ctx, o.client, o.key, o.version, overrides.Most, roundTrip)
	if fields != nil {
		o.version = version
		o.learn(fields)
	}

	// A master of a cluster may have failed. The client itself looks for another once a minute.
	if cluster, ok := o.client.(*redis.ClusterClient); ok && err != nil {
		cluster.ReloadState(ctx)
	}

	if ctx.Err() == nil && (err != nil || o.unread) {
		o.report(err)
	}
}

// report logs that a look has failed, or that Redis answers again.
func (o *Overrides) report(err error) {
	limits, bans := o.InForce()
	o.unread = err != nil
	if err == nil {
		o.log.Forget(diag.OverridesUnread, "")
		cmp.Or(o.log.Logger, slog.Default()).Info("ratelimit: the overrides of operators can be read now", "key", o.key, "limits", limits, "bans", bans)
		return
	}

	consequence := "the last known ones stay"
	if limits+bans == 0 {
		consequence = "none is in force until they can be"
	}
	o.log.Report(diag.OverridesUnread, "", "the overrides of operators cannot be read: "+consequence, "key", o.key, "error", err)
}

// roundTrip makes one round trip. It ends with the timeout, also if the client waits longer by its settings.
func roundTrip(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return await.Call(ctx, func() error { return f(ctx) })
}

// learn replaces the overrides in use.
func (o *Overrides) learn(fields map[string]string) {
	known, now := new(overrides.Table), time.Now()
	for field, value := range fields {
		e, err := overrides.Parse(field, value, now)
		if err != nil {
			o.log.Report(diag.OverridesUnread, field, "an override of operators is broken, and has no effect", "key", o.key, "error", err)
			continue
		}
		known.Add(e)
	}
	o.known.Store(known)
}
