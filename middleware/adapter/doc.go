// Package adapter has what an adapter needs to put a [middleware.Limiter] into a framework. Programs
// that use one of this module's adapters need it only for Limiter.Peek outside of the limiter.
//
// An adapter has one thought: hand the request to the limiter, and stop the chain if it is denied.
// For a framework whose context has a Request and a Response:
//
//	func From(l *middleware.Limiter) framework.Middleware {
//		return func(c *framework.Context) {
//			r := adapter.WithFramework(c.Request, route(c), c)
//			r, ok := l.Allow(c.Response, r)
//			c.Request = r
//			if ok {
//				c.Next()
//			}
//		}
//	}
//
// The pattern is the route that will serve the request, method first, in the syntax of a ServeMux: "GET
// /users/{id}" for a template "/users/:id", "GET /files/{path...}" for "/files/*". The number of routes
// must be bounded: leave out a method that a client can invent, and never pass a path. If the framework
// finds the route after the limiter, ask its router, or pass "": policies then go by the path. The
// request's URL must be the one that the router reads; a policy applies by the path too where the URL
// is not below the route.
//
// If the framework has no context of its own, use [WithRoute]. If its handlers run in a server without
// net/http, make an *http.Request with at least Method, URL, RequestURI, Header, Host and RemoteAddr, and
// pass it to Limiter.Admit, which writes no response. RemoteAddr is the connection's peer, never an
// address from a header. Adapters of remote procedure calls build their limiter with [NewRPC],
// and say a denial as [Denial] does.
//
// Middleware that also holds slots of package inflight lets requests through a [Gate] in place of the Limiter.
//
// [KeyFrom] makes a Policy.Key of a function of the framework's context, and [DenyFrom] a Config.Deny. Pages for operators find what
// applies to a subject by the methods of [middleware.Policy].
package adapter
