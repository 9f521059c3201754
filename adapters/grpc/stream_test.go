package ratelimit_test

import (
	"context"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
)

// silent is a ServerStream that sends nothing.
type silent struct {
	grpc.ServerStream
	ctx context.Context
}

func (s silent) Context() context.Context { return s.ctx }
func (silent) SendMsg(any) error          { return nil }

// transport takes metadata and sends none.
type transport struct{}

func (transport) Method() string               { return unaryCall }
func (transport) SetHeader(metadata.MD) error  { return nil }
func (transport) SendHeader(metadata.MD) error { return nil }
func (transport) SetTrailer(metadata.MD) error { return nil }

func incoming(ctx context.Context) context.Context {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(":authority", "example.com", "user-agent", "grpc-go", "content-type", "application/grpc"))
	return grpc.NewContextWithServerTransportStream(ctx, transport{})
}

// The limiter starts no goroutine for a stream, keeps at most 4 KiB for it, and
// allocates nothing for a message.
func TestStreamCosts(t *testing.T) {
	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "calls", Key: key("k"), Limit: gcra.PerMinute(1_000_000)}).Stream()
	const streams = 10_000 // far more than what earlier tests leave to the collector
	open := make([]grpc.ServerStream, 0, streams)
	ctx := incoming(t.Context())
	goroutines, before := runtime.NumGoroutine(), heap()
	for range streams {
		err := limit(nil, silent{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: duplexCall}, func(_ any, s grpc.ServerStream) error {
			open = append(open, s)
			return s.SendMsg(nil)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := runtime.NumGoroutine(); got >= goroutines+streams {
		t.Errorf("got %d goroutines for %d streams; want none", got-goroutines, streams)
	}
	bytes := (heap() - before) / streams
	if bytes > 4<<10 {
		t.Errorf("a stream: got %d bytes; want at most 4096", bytes)
	}
	t.Logf("a stream holds %d bytes", bytes)
	if n := testing.AllocsPerRun(100, func() { _ = open[0].SendMsg(nil) }); n != 0 {
		t.Errorf("a message: got %v allocations; want 0", n)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // for what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkUnary(b *testing.B) {
	unary := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "calls", Key: key("k"), Limit: gcra.PerSecond(1_000_000).WithBurst(1_000_000_000)}).Unary()
	ctx := incoming(b.Context())
	info := &grpc.UnaryServerInfo{FullMethod: unaryCall}
	handler := func(_ context.Context, req any) (any, error) { return req, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unary(ctx, nil, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}
