// Package keyfunc says what a limit counts by: a user, an API key, an address or a route.
//
// A key function turns a request into a key. Within a policy, requests with the same key share one
// bucket. There are three kinds of results:
//
//	("ip:192.0.2.7", nil)  a key
//	("", nil)              an anonymous request: [First] calls the next function;
//	                       otherwise they share one bucket of the policy,
//	                       unless it has SkipAnonymous
//	("", err)              an error, which no client can cause: the policy's
//	                       OnFailure decides
//
// No function of this package returns an error of its own. Constructors panic on what they could
// not work with, such as a nil function.
//
// # Choosing a function
//
// Use the first line that applies:
//
//	clients send a bearer JWT                      JWTSubject, JWTClaims
//	other middleware authenticates first           Subject
//	clients send an API key                        APIKey
//	clients connect to this server directly        RemoteAddr
//	known proxies write X-Forwarded-For            TrustedProxies
//	known proxies write Forwarded                  Forwarded
//	known proxies set a header with one address    AddrHeader
//	the number of their entries is known           TrustedHops
//
// Put a limit by address before authentication, against guesses, and a limit by identity after it.
// Each kind of key has its own prefix, such as ip: and sub:. Keys may be personal data. See
// docs/keys.md.
package keyfunc

// One file for each source of a key: addr.go for the peer, forwarded.go for X-Forwarded-For and for any header with one
// address, rfc7239.go for Forwarded, identity.go and jwt.go for users, route.go for routes. combine.go combines key
// functions. prefixes.go has the trusted networks, header.go the check of names.

import "net/http"

// Func returns the key of a request. The package comment explains its results. It must be safe
// for concurrent use and must not change the request. Give keys of your own a prefix of their own.
type Func = func(*http.Request) (string, error)
