package overrides

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// readPart is about how many fields a round trip reads: Redis serves nobody else meanwhile.
const readPart = 250

// RoundTrip calls a function that makes one round trip, and returns its error.
type RoundTrip func(context.Context, func(context.Context) error) error

// Read returns the fields of the hash with their values, at most so many, and its version apart. If that
// is the known one, and not "", fields is nil.
//
// A change during the Read may be in fields, or not. The version is of before, and "" if fields are missing,
// so that the next Read finds what this one has missed.
func Read(ctx context.Context, client redis.UniversalClient, key, known string, most int, call RoundTrip) (fields map[string]string, version string, err error) {
	var node redis.Cmdable = client
	var found string // after an error call may go on writing both
	err = call(ctx, func(ctx context.Context) (err error) {
		// A cursor means nothing to another node: a replica, or a master to which the slot moves.
		if cluster, ok := client.(*redis.ClusterClient); ok {
			if node, err = cluster.MasterForKey(ctx, key); err != nil {
				return err
			}
		}
		found, err = node.HGet(ctx, key, Version).Result()
		if errors.Is(err, redis.Nil) { // there are none, or somebody has written them by hand
			return nil
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if found != "" && found == known {
		return nil, found, nil
	}

	fields = map[string]string{}
	for cursor, more := uint64(0), true; more; {
		var part []string
		err := call(ctx, func(ctx context.Context) (err error) {
			part, cursor, err = node.HScan(ctx, key, cursor, "", readPart).Result()
			return err
		})
		if err != nil {
			return nil, "", err
		}

		more = cursor != 0
		for i := 0; i+1 < len(part); i += 2 {
			fields[part[i]] = part[i+1]
		}
		if delete(fields, Version); len(fields) > most {
			return nil, "", fmt.Errorf("there are more than %d; want fewer, as the command keeps them", most)
		}
	}
	if found == "" {
		return fields, "", nil
	}

	// A server that has taken over meanwhile knows other cursors.
	var all int64
	err = call(ctx, func(ctx context.Context) (err error) {
		all, err = node.HLen(ctx, key).Result()
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if all != int64(len(fields))+1 {
		found = ""
	}
	return fields, found, nil
}
