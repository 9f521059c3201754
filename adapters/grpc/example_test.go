package ratelimit_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func Example() {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "health", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"/grpc.health.v1.Health/*"}},
	)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary()),
		grpc.ChainStreamInterceptor(limit.Stream()),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	for range 3 {
		var header, trailer metadata.MD
		_, err := client.Check(context.Background(), new(healthpb.HealthCheckRequest), grpc.Header(&header), grpc.Trailer(&trailer))
		remaining := metadata.Join(header, trailer).Get("ratelimit-remaining")
		fmt.Println(status.Code(err), "remaining", remaining)
	}
	// Output:
	// OK remaining [1]
	// OK remaining [0]
	// ResourceExhausted remaining [0]
}

// Health checks of a load balancer count like all calls, unless a policy skips them.
func ExamplePolicy_skip() {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{
			Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100),
			Skip: func(r *http.Request) bool { return r.Pattern == healthpb.Health_Check_FullMethodName },
		})
	grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary()), grpc.ChainStreamInterceptor(limit.Stream()))
}

// The handler of a stream charges each message that it receives.
func ExampleFromContext() {
	_ = func(stream grpc.BidiStreamingServer[healthpb.HealthCheckRequest, healthpb.HealthCheckResponse]) error {
		ctx := stream.Context()
		for {
			if _, err := stream.Recv(); err != nil {
				return err
			}
			if err := ratelimit.FromContext(ctx).Spend(ctx, 1, "messages"); err != nil {
				slog.WarnContext(ctx, "message not charged", "error", err) // names the store: not for the client
			}
		}
	}
}
