// Package ratelimit limits the calls of a Connect server, in all its protocols:
// Connect, gRPC and gRPC-Web.
//
//	limit := ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//		ratelimit.Policy{Name: "search", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{"/shop.Catalog/Search"}},
//	)
//	mux.Handle(shopconnect.NewCatalogHandler(catalog, connect.WithInterceptors(authenticate, limit)))
//
// Put it after the authentication, so that keys know the user, and inside
// interceptors that trace or measure calls, so that they see denials. A unary call
// without a valid message is not counted: bound its size with connect.WithReadMaxBytes.
//
// # Keys and routes
//
// Key, Cost, LimitFor and Skip see a call as an *http.Request: a POST, also if it came as
// a GET, with the procedure as its path and with the header, Host and RemoteAddr of
// the HTTP request. Its TLS is nil, and its ContentLength -1. The functions of package
// keyfunc work unchanged.
//
// Policy.Routes are procedures: "/shop.Catalog/Search", or "/shop.Catalog/*" for all
// of a service, wherever the handler is mounted.
//
// # Denials
//
// A denied call ends with connect.CodeResourceExhausted, or with connect.CodeUnavailable
// because a policy could not be decided. The error has a google.rpc.RetryInfo,
// unless no wait helps, and for policies that denied a google.rpc.QuotaFailure with their
// names. Retry-After and the RateLimit fields are headers of the response. A call whose
// context ends while MaxDelay holds it back ends with the context's code.
//
// # Streams
//
// A stream is charged once, before its handler runs. The handler charges messages:
//
//	err := ratelimit.FromContext(ctx).Spend(ctx, 1, "messages")
//
// The last argument is the policy. Spend does not end the stream. Log its error, which may
// name the server of the store, and do not return it to the client.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
package ratelimit

import (
	"context"
	"net/http"
	"net/url"

	"connectrpc.com/connect"

	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// The types that most programs need. Package middleware has the others.
type (
	Config   = middleware.Config
	Policy   = middleware.Policy
	Decision = middleware.Decision
)

// FromContext returns the Decision that a request carries, or nil. See [middleware.FromContext].
func FromContext(ctx context.Context) *Decision { return middleware.FromContext(ctx) }

// New returns an interceptor for handlers that limits calls by the policies. It panics
// if the configuration is not valid, also for Routes that are not of calls, such as
// "/login": [adapter.NewRPC] returns the error.
func New(cfg Config, policies ...Policy) connect.Interceptor {
	return From(middleware.Must(adapter.NewRPC(cfg, policies...)))
}

// From returns an interceptor for handlers that limits calls by l, which may serve HTTP too.
// Build it with [adapter.NewRPC] if it does not. The handlers find the Decision with [FromContext].
// It is not for clients: outbound/httpclient limits their calls.
func From(l *middleware.Limiter) connect.Interceptor {
	return &interceptor{middleware.Must(l, nil)}
}

type interceptor struct{ limiter *middleware.Limiter }

func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return nil, inClient()
		}
		fields := http.Header{}
		if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
			fields = info.ResponseHeader()
		}
		ctx, err := i.admit(newRequest(ctx, req.Spec(), req.Peer(), req.Header()), fields)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, err := i.admit(newRequest(ctx, conn.Spec(), conn.Peer(), conn.RequestHeader()), conn.ResponseHeader())
		if err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

func (i *interceptor) WrapStreamingClient(connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(_ context.Context, spec connect.Spec) connect.StreamingClientConn {
		return clientConn{spec}
	}
}

// admit decides about a call, and returns the context for its handler or the error of
// its denial. It writes the fields of the response.
func (i *interceptor) admit(r *http.Request, fields http.Header) (context.Context, error) {
	r, denied := i.limiter.Admit(fields, r)
	if denied != nil {
		fields.Set("Cache-Control", "no-store") // a GET may be cached
		return nil, denial(denied)
	}
	return r.Context(), nil
}

func newRequest(ctx context.Context, spec connect.Spec, peer connect.Peer, header http.Header) *http.Request {
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Path: spec.Procedure},
		RequestURI:    spec.Procedure,
		Pattern:       spec.Procedure,
		Header:        header,
		Host:          header.Get("Host"), // Connect puts it there
		RemoteAddr:    peer.Addr,
		Body:          http.NoBody,
		ContentLength: -1, // unknown
	}
	return r.WithContext(ctx)
}
