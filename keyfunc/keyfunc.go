// Package keyfunc answers the first question of rate limiting: who is counted.
//
// A key function turns a request into a string, and all requests with the same
// string share one bucket. It has three ways to answer:
//
//	("ip:192.0.2.7", nil)  count this one
//	("", nil)              an anonymous request: [First] asks the next function;
//	                       alone, all such requests share one bucket
//	("", err)              could not tell: the policy follows its OnFailure
//
// The second answer is stricter than a bucket of one's own and never a way
// around the limit, so it is the answer to everything that a client can bring
// about: a missing header, a forged token, an unknown API key, garbage. The
// third may open a door (with FailOpen), so a client must not be able to
// cause it. No function of this package returns an error of its own; [First],
// [Join] and [IPv6Prefix] hand on those of the functions they are given.
//
// # Which one
//
// Take the first line that is true:
//
//	clients send a JWT                             JWTSubject
//	other middleware authenticates before          Subject
//	clients send an API key                        APIKey
//	they connect to this server directly           RemoteAddr
//	they come through proxies of known networks    TrustedProxies
//	... that write the Forwarded header            Forwarded
//	... of which one sets a header of its own      Header
//	... whose addresses change but not their count TrustedHops
//
// Identity before address, address as what is left:
//
//	keyfunc.First(subject, keyfunc.RemoteAddr)
//
// A limit by address belongs before authentication, where it keeps guesses of
// passwords and tokens cheap for the server; a limit by identity belongs after.
//
// There is no function called IP. An address is only worth what the one who
// reports it is worth, and so the name at the call site says who is trusted.
//
// # Keys
//
// Every kind of key has a prefix of its own (ip:, sub:, key:, route:, const:,
// join:), so that a user called 192.0.2.7 is not counted with that address.
// Keys are for counting and for logs. They are not made to be taken apart, and
// they hold identities and addresses: treat them as personal data.
package keyfunc

import "net/http"

// Func says who is counted for a request. The package comment tells what its
// three answers mean. It must be safe for concurrent use and may read the
// request but not change it.
//
// It is an alias, so any function of this shape is a Func. Write your own where
// this package has none that fits, give its keys a prefix of their own, and
// return an error only where no client can provoke it.
type Func = func(*http.Request) (string, error)
