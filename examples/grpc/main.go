// Grpc limits a gRPC server to 2 calls a second for each address, after a burst of 3.
// Its client makes 8 calls in a row, and waits as long as the server says.
//
//	go run ./examples/grpc
//
// The service is gRPC's own health service, as its code comes with grpc-go.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func main() {
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := newServer(gcra.NewMemory()) // redisstore.Open shares the limits between servers
	defer server.Stop()
	go server.Serve(listener)
	return call(out, listener.Addr().String())
}

func newServer(store gcra.Store) *grpc.Server {
	limit := ratelimit.New(ratelimit.Config{Store: store},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(2).WithBurst(3)}, // behind a proxy: keyfunc.TrustedProxies
		ratelimit.Policy{Name: "watch", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{healthpb.Health_Watch_FullMethodName}},
	)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary()), // authentication goes before it
		grpc.ChainStreamInterceptor(limit.Stream()),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	return server
}

// retries makes a client repeat calls that were denied. It waits as long as the server
// says; the backoff is for calls that failed without a server.
const retries = `{"methodConfig": [{
	"name": [{}],
	"retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]
	}
}]}`

func call(out io.Writer, addr string) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(retries))
	if err != nil {
		return err
	}
	defer conn.Close()

	client := healthpb.NewHealthClient(conn)
	for n := range 8 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var header metadata.MD
		start := time.Now()
		_, err := client.Check(ctx, new(healthpb.HealthCheckRequest), grpc.Header(&header))
		cancel()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "call %d: OK after %v, remaining %s\n", n+1, time.Since(start).Round(100*time.Millisecond), header.Get("ratelimit-remaining")[0])
	}
	return nil
}
