package rediskit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// DefaultTimeout is the Timeout of the stores whose Config has none.
const DefaultTimeout = 50 * time.Millisecond

// CheckClient returns an error of the package if there is no client.
func CheckClient(pkg string, client redis.UniversalClient) error {
	if iface.IsNil(client) {
		return fmt.Errorf("%s: client is nil; want a *redis.Client, *redis.ClusterClient or *redis.Ring", pkg)
	}
	return nil
}

// CheckConfig returns one error of the package for each mistake in the fields that the Configs of the stores share.
func CheckConfig(pkg, prefix string, timeout time.Duration) (err error) {
	if strings.ContainsAny(prefix, "{}") {
		err = fmt.Errorf("%s: Prefix is %q; want one without braces, which would put all keys into one slot", pkg, prefix)
	}
	if timeout != 0 && (timeout < time.Millisecond || timeout > time.Minute) {
		err = errors.Join(err, fmt.Errorf("%s: Timeout is %v; want 1ms to 1m, or 0 (%v)", pkg, timeout, DefaultTimeout))
	}
	return err
}
