// Package ratelimit limits the calls of a gRPC server.
//
//	limit := ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//		ratelimit.Policy{Name: "search", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{"/shop.Catalog/Search"}},
//	)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(authenticate, limit.Unary()),
//		grpc.ChainStreamInterceptor(authenticateStream, limit.Stream()),
//	)
//
// Use both interceptors: Unary does not see streams. Put them after the
// authentication, so that keys know the user, and after what recovers panics.
//
// # Keys and routes
//
// Key, Cost, LimitFor and Skip see a call as an *http.Request: a POST with the full
// method as its path, the metadata as its header, the :authority as its Host, and the
// peer as its RemoteAddr and TLS. The functions of package keyfunc work unchanged.
//
// Policy.Routes are full methods: "/shop.Catalog/Search", or "/shop.Catalog/*" for all
// of a service. Without Routes a policy is for all services, also health and reflection;
// Skip can exempt their calls.
//
// A call that ends before its interceptors run is not counted, such as a unary one whose
// message is malformed or too large. Bound such calls with grpc.MaxRecvMsgSize and
// grpc.MaxConcurrentStreams.
//
// # Denials
//
// A denied call ends with codes.ResourceExhausted, or with codes.Unavailable because a policy
// could not be decided. The status has a google.rpc.RetryInfo, unless no wait helps, and for
// policies that denied a google.rpc.QuotaFailure with their names. A call whose context ends
// while MaxDelay holds it back ends with the context's code.
//
// The RateLimit fields are metadata, in lower case. docs/rpc.md says where, and has a retry
// policy for clients.
//
// # Streams
//
// A stream is charged once, before its handler runs. The handler charges messages:
//
//	err := ratelimit.FromContext(stream.Context()).Spend(stream.Context(), 1, "messages")
//
// The last argument is the policy. Spend does not end the stream. Log its error, which may
// name the server of the store, and do not return it to the client.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
package ratelimit

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc"

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

// Interceptors limit calls. Servers may share them.
type Interceptors struct{ limiter *middleware.Limiter }

// New returns interceptors that limit calls by the policies. It panics if the
// configuration is not valid, also for Routes that are not of calls, such as "/login":
// [adapter.NewRPC] returns the error.
func New(cfg Config, policies ...Policy) *Interceptors {
	return From(middleware.Must(adapter.NewRPC(cfg, policies...)))
}

// From returns interceptors that limit calls by l, which may serve HTTP too. Build it with
// [adapter.NewRPC] if it does not. The handlers find the Decision with [FromContext].
func From(l *middleware.Limiter) *Interceptors {
	return &Interceptors{middleware.Must(l, nil)}
}

// Unary returns the interceptor for unary calls.
func (i *Interceptors) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		err = i.limit(ctx, info.FullMethod, info.FullMethod, func(ctx context.Context, _ *call) (err error) {
			resp, err = handler(ctx, req)
			return err
		})
		return resp, err
	}
}

// Stream returns the interceptor for streams.
func (i *Interceptors) Stream() grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		route := info.FullMethod
		if srv == nil { // grpc.UnknownServiceHandler: clients invent the method
			route = ""
		}
		return i.limit(ss.Context(), info.FullMethod, route, func(ctx context.Context, c *call) error {
			return handler(srv, &stream{ss, ctx, c})
		})
	}
}

// limit decides about a call, and calls next if it may go on. route is the method if
// the server knows it.
func (i *Interceptors) limit(ctx context.Context, method, route string, next func(context.Context, *call) error) (err error) {
	c, nested := adapter.Framework[*call](ctx)
	if !nested {
		c = &call{fields: http.Header{}}
	}
	// Inner limiters write into the fields of the outer one, which sends them once.
	r, denied := i.limiter.Admit(c.fields, adapter.WithFramework(newRequest(ctx, method), route, c))
	if !nested {
		defer func() { c.finish(ctx, err) }()
	}
	if denied != nil {
		return c.deny(denied)
	}
	err = errPanicked // unless next returns
	err = next(r.Context(), c)
	return err
}

// errPanicked stands for the error of a call whose handler has panicked.
var errPanicked = errors.New("the handler has panicked")
