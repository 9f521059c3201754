package ratelimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/rpctest"
)

// A store that fails is tested here.
func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m, diag.StoreFailed).Run()) }

const (
	unaryCall  = "/test.v1.Service/Unary"
	getCall    = "/test.v1.Service/Get" // unary, without side effects
	streamCall = "/test.v1.Service/Stream"
	duplexCall = "/test.v1.Service/Duplex"
)

// handler serves the procedures.
func handler(h rpctest.Handler, options ...connect.HandlerOption) http.Handler {
	unary := func(ctx context.Context, _ *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
		if err := h.Answer(ctx, func() error { return nil }); err != nil {
			return nil, err
		}
		return connect.NewResponse(new(emptypb.Empty)), nil
	}
	stream := func(ctx context.Context, _ *connect.Request[emptypb.Empty], stream *connect.ServerStream[emptypb.Empty]) error {
		return h.Answer(ctx, func() error { return stream.Send(new(emptypb.Empty)) })
	}
	duplex := func(ctx context.Context, stream *connect.BidiStream[emptypb.Empty, emptypb.Empty]) error {
		message, err := stream.Receive()
		if err != nil {
			return err
		}
		return h.Answer(ctx, func() error { return stream.Send(message) })
	}

	mux := http.NewServeMux()
	mux.Handle(unaryCall, connect.NewUnaryHandler(unaryCall, unary, options...))
	mux.Handle(getCall, connect.NewUnaryHandler(getCall, unary, append(options, connect.WithIdempotency(connect.IdempotencyNoSideEffects))...))
	mux.Handle(streamCall, connect.NewServerStreamHandler(streamCall, stream, options...))
	mux.Handle(duplexCall, connect.NewBidiStreamHandler(duplexCall, duplex, options...))
	return mux
}

// transport is a version of HTTP, without TLS.
type transport struct {
	name      string
	protocols http.Protocols
}

func transports() []transport {
	http1, h2c := transport{name: "HTTP/1.1"}, transport{name: "h2c"}
	http1.protocols.SetHTTP1(true)
	h2c.protocols.SetUnencryptedHTTP2(true)
	return []transport{http1, h2c}
}

// protocols are what Connect's clients speak.
var protocols = map[string][]connect.ClientOption{
	"Connect":  nil,
	"gRPC":     {connect.WithGRPC()},
	"gRPC-Web": {connect.WithGRPCWeb()},
}

// site is a server and its clients.
type site struct {
	url     string
	client  *http.Client
	options []connect.ClientOption
}

// serve starts a server on loopback.
func serve(t testing.TB, over transport, h http.Handler) site {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = &over.protocols
	server.Start()
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{Protocols: &over.protocols}}
	t.Cleanup(client.CloseIdleConnections)
	return site{url: server.URL, client: client}
}

func (s site) with(options ...connect.ClientOption) site {
	s.options = append(options, s.options...)
	return s
}

// answer returns what a client gets: the headers and trailers together, as an error has them.
func answer(err error, meta http.Header) rpctest.Answer {
	if err == nil {
		return rpctest.Answer{Fields: meta}
	}
	failed, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return rpctest.Answer{Code: uint32(connect.CodeUnknown), Message: err.Error()}
	}

	a := rpctest.Answer{Code: uint32(failed.Code()), Message: failed.Message(), Fields: failed.Meta()}
	for _, d := range failed.Details() {
		message, err := d.Value()
		if err != nil {
			panic(err)
		}
		a.Details = append(a.Details, message)
	}
	return a
}

// call makes a call of the procedure with one message, and reads to the end.
func (s site) call(ctx context.Context, procedure string, header http.Header) rpctest.Answer {
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](s.client, s.url+procedure, s.options...)
	switch procedure {
	case streamCall:
		stream, err := client.CallServerStream(ctx, connect.NewRequest(new(emptypb.Empty)))
		if err != nil {
			return answer(err, nil)
		}
		defer stream.Close()
		for stream.Receive() { // to the end
		}
		return answer(stream.Err(), stream.ResponseHeader())
	case duplexCall:
		stream := client.CallBidiStream(ctx)
		defer stream.CloseResponse()
		_ = stream.Send(new(emptypb.Empty)) // Receive has the error of the stream
		_ = stream.CloseRequest()
		var err error
		for err == nil {
			_, err = stream.Receive()
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return answer(err, stream.ResponseHeader())
	}

	request := connect.NewRequest(new(emptypb.Empty))
	for name, values := range header {
		for _, value := range values {
			if strings.HasSuffix(name, "-Bin") {
				value = connect.EncodeBinaryHeader([]byte(value))
			}
			request.Header().Add(name, value)
		}
	}
	response, err := client.CallUnary(ctx, request)
	if err != nil {
		return answer(err, nil)
	}
	return answer(nil, response.Header())
}

func key(s string) func(*http.Request) (string, error) {
	return func(*http.Request) (string, error) { return s, nil }
}
