package ratelimit

import (
	"errors"
	"net/http"

	"connectrpc.com/connect"
)

// inClient returns the error of a client that has the interceptor. Each has its own, as
// callers may change its Meta.
func inClient() error {
	return connect.NewError(connect.CodeInternal, errors.New("ratelimit: a client has the interceptor of a server; want outbound/httpclient as its http.RoundTripper"))
}

// clientConn is a stream of a client that has the interceptor. It sends no request.
type clientConn struct{ spec connect.Spec }

func (c clientConn) Spec() connect.Spec         { return c.spec }
func (clientConn) Peer() connect.Peer           { return connect.Peer{} }
func (clientConn) RequestHeader() http.Header   { return http.Header{} }
func (clientConn) Send(any) error               { return inClient() }
func (clientConn) CloseRequest() error          { return nil }
func (clientConn) Receive(any) error            { return inClient() }
func (clientConn) ResponseHeader() http.Header  { return http.Header{} }
func (clientConn) ResponseTrailer() http.Header { return http.Header{} }
func (clientConn) CloseResponse() error         { return nil }
