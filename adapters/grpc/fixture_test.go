package ratelimit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
)

// A store that fails is tested here.
func TestMain(m *testing.M) {
	parallel.AtMost(4) // they wait for limits
	os.Exit(diagtest.Quiet(m, diag.StoreFailed).Run())
}

const (
	unaryCall  = "/grpc.testing.TestService/UnaryCall"
	emptyCall  = "/grpc.testing.TestService/EmptyCall"
	duplexCall = "/grpc.testing.TestService/FullDuplexCall"
)

// service answers each call, and each message of a stream. unary and duplex replace
// the handlers.
type service struct {
	pb.UnimplementedTestServiceServer
	unary  func(context.Context) error
	duplex func(grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if s.unary != nil {
		return new(pb.SimpleResponse), s.unary(ctx)
	}
	return new(pb.SimpleResponse), nil
}

func (s *service) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) {
	return new(pb.Empty), nil
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if s.duplex != nil {
		return s.duplex(stream)
	}
	for {
		if _, err := stream.Recv(); err != nil {
			return nil // the client has closed its side
		}
		if err := stream.Send(new(pb.StreamingOutputCallResponse)); err != nil {
			return err
		}
	}
}

// limited are the options of a server with the limiter alone.
func limited(limit *ratelimit.Interceptors) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(limit.Unary()), grpc.StreamInterceptor(limit.Stream())}
}

// serve starts a server on loopback.
func serve(t testing.TB, s *service, options ...grpc.ServerOption) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, l, s, options...)
	return l.Addr().String()
}

func newServer(s *service, options ...grpc.ServerOption) *grpc.Server {
	server := grpc.NewServer(options...)
	pb.RegisterTestServiceServer(server, s)
	return server
}

func serveOn(t testing.TB, l net.Listener, s *service, options ...grpc.ServerOption) {
	server := newServer(s, options...)
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func dial(t testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// answer is what a client gets.
type answer struct {
	*status.Status
	header, trailer metadata.MD
}

// call makes a unary call.
func call(ctx context.Context, conn *grpc.ClientConn) (a answer) {
	_, err := pb.NewTestServiceClient(conn).UnaryCall(ctx, new(pb.SimpleRequest), grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	a.Status = status.Convert(err)
	return a
}

// converse opens a stream, sends one message and reads one.
func converse(t testing.TB, conn *grpc.ClientConn) (a answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Send(new(pb.StreamingOutputCallRequest)) // the next line has the error of the stream
	_, err = stream.Recv()
	a.Status = status.Convert(err)
	a.header, _ = stream.Header() // without one the error is that of the stream
	a.trailer = stream.Trailer()
	return a
}

// first returns the only value of a key, "" for none.
func first(md metadata.MD, key string) string {
	switch values := md.Get(key); len(values) {
	case 0:
		return ""
	case 1:
		return values[0]
	default:
		return "several values"
	}
}

func key(s string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return s, nil }
}

// down is a store that fails, and has no state of its own.
type down struct{}

var errDown = errors.New("down")

func (down) Take(context.Context, []gcra.Charge) (bool, error) { return false, errDown }
func (down) Refund(context.Context, []gcra.Charge) error       { return errDown }
