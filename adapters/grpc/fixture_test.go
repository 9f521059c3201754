package ratelimit_test

import (
	"context"
	"errors"
	"io"
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
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/rpctest"
)

// A store that fails is tested here.
func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m, diag.StoreFailed).Run()) }

const (
	unaryCall  = "/grpc.testing.TestService/UnaryCall"
	duplexCall = "/grpc.testing.TestService/FullDuplexCall"
)

// service is the server of unaryCall and duplexCall. duplex replaces the handler of the latter.
type service struct {
	pb.UnimplementedTestServiceServer
	handler rpctest.Handler
	duplex  func(grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error
}

func (s *service) UnaryCall(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return new(pb.SimpleResponse), s.handler.Answer(ctx, func() error { return nil })
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	if s.duplex != nil {
		return s.duplex(stream)
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return s.handler.Answer(stream.Context(), func() error { return stream.Send(new(pb.StreamingOutputCallResponse)) })
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

// converse opens a stream, sends one message and reads to the end.
func converse(ctx context.Context, conn *grpc.ClientConn) (a answer) {
	stream, err := pb.NewTestServiceClient(conn).FullDuplexCall(ctx)
	if err != nil {
		a.Status = status.Convert(err)
		return a
	}

	_ = stream.Send(new(pb.StreamingOutputCallRequest)) // Recv has the error of the stream
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		a.Status = status.Convert(err)
	}
	a.header, _ = stream.Header() // without one the error is the stream's
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
