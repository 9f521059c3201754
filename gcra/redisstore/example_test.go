package redisstore_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// Several servers share the limits in a Redis.
func ExampleOpen() {
	store, err := redisstore.Open("redis://localhost:6379/0", redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	result, err := gcra.Take(context.Background(), store, gcra.Charge{
		Subject: "ip:192.0.2.7", Policy: "login", Limit: gcra.PerMinute(5), Cost: 1,
	})
	switch {
	case err != nil:
		// Redis has not decided: allow or deny, as your policy says.
	case !result.Allowed:
		fmt.Println("retry after", result.RetryAfter)
	}
}

// ClientOptions for a Redis whose certificate is signed by a private authority.
func ExampleClientOptions() {
	ca, err := os.ReadFile("/etc/redis/ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		log.Fatal("/etc/redis/ca.crt holds no certificate")
	}

	opts, err := redisstore.ClientOptions("rediss://redis.internal:6379/0")
	if err != nil {
		log.Fatal(err)
	}
	opts.TLSConfig.RootCAs = pool
	client := redis.NewUniversalClient(opts)
	defer client.Close()

	store, err := redisstore.New(client, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}

	_, err = gcra.Take(context.Background(), store, gcra.Charge{
		Subject: "ip:192.0.2.7", Policy: "login", Limit: gcra.PerMinute(5), Cost: 1,
	})
	if err != nil {
		log.Print(err) // Redis has not decided
	}
}
