package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/redisclient"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Open returns a [Store] on a client of its own, with settings as [ClientOptions] returns them.
// It does not wait for Redis: a server that is down when the program starts is used once it
// is up. Close the store when done.
//
// The URL is redis://user:password@host:6379/0, rediss:// for TLS, or
// unix://user:password@/path/to/redis.sock?db=0 for a unix socket. Several
// hosts, redis://host1:6379,host2:6379, are the seeds of a cluster. Parameters
// as in [redis.ParseURL] override the settings: ?pool_size=20. A count of 0 does not, as
// in ?min_idle_conns=0.
//
// The error is about the URL or the Config.
func Open(rawURL string, cfg Config) (*Store, error) {
	o, dials, err := clientOptions(rawURL, cmp.Or(cfg.Timeout, rediskit.DefaultTimeout))
	if err := errors.Join(err, cfg.check()); err != nil {
		return nil, err
	}

	return newStore(newClient(o), cfg, dials), nil
}

// newClient is redis.NewUniversalClient, but a cluster's topology is reloaded by the
// store.
func newClient(o *redis.UniversalOptions) redis.UniversalClient {
	if len(o.Addrs) == 1 {
		return redis.NewClient(o.Simple())
	}
	cluster := o.Cluster()
	// The store calls ReloadState. A client by itself reloads with every call once
	// the topology is older than this, even while no node answers.
	cluster.ClusterStateReloadInterval = 24 * time.Hour
	c := redis.NewClusterClient(cluster)
	// Nodes are known, and dialled ahead, only once the topology is loaded.
	// Otherwise the first call would spend its Timeout on that.
	c.ReloadState(context.Background())
	return c
}

// ClientOptions returns settings for a client of [New], as [Open] makes them for a Timeout of
// 50 ms. Change what a URL cannot say, such as TLSConfig.RootCAs for a private certificate
// authority, and give them, not a copy, to [redis.NewUniversalClient]: the Dialer reads TLSConfig and
// DialTimeout when it dials.
//
// TLSConfig is nil unless the URL begins with rediss://. With it the server's
// certificate must be valid for the host of the URL, unless skip_verify is set. On a
// cluster whose seeds are different hosts the certificate of each node must be valid for
// the address that the cluster announces for that node; set TLSConfig.ServerName where
// all nodes share another name.
func ClientOptions(rawURL string) (*redis.UniversalOptions, error) {
	o, _, err := clientOptions(rawURL, rediskit.DefaultTimeout)
	return o, err
}

func clientOptions(rawURL string, timeout time.Duration) (*redis.UniversalOptions, *redisclient.Dialer, error) {
	o, dials, err := redisclient.Options(rawURL, timeout)
	if err != nil {
		return nil, nil, fmt.Errorf("redisstore: %w", err)
	}
	return o, dials, nil
}
