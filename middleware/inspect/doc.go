// Package inspect is a page, and the same data as JSON, that shows operators what a
// limiter does.
//
//	page, err := inspect.New(inspect.Config{Authorize: isAdmin}, limiter)
//	...
//	mux.Handle("/debug/ratelimit", page)
//
// It shows the policies in force, their decisions of the last 15 minutes, the subjects
// denied most, and the state of the store. It looks up a subject, which is what a policy's
// Key returns ("ip:192.0.2.7"): the remaining units and when the bucket is full. With LimitFor it
// does so for each of Plans and for Limit. And it resets a subject in the policies that are
// chosen, as [middleware.Limiter.Reset] does. Other servers on the same Redis may take
// their DenialTTL to notice it.
//
// The page needs no JavaScript and loads nothing. It responds with JSON to ?format=json
// or, without a format, to an Accept field with application/json and without text/html; stats
// are redisstats.Stats as they are. It
// looks up a subject with ?subject=ip:192.0.2.7, and resets it with a POST of a URL-encoded
// form with subject and policy (one or several). The response to a reset is a redirect to
// the subject, or a line that says what is wrong. Links and forms are relative: mount the page with or without [http.StripPrefix].
//
// Mount the page outside the limiter, or a denied client cannot open it: with echo and gin, on
// a router that does not use the limiter.
//
// # Authorization
//
// Subjects may be addresses and names of people, and a reset lifts limits, so [New] fails
// without [Config.Authorize]. [http.CrossOriginProtection] denies a POST from another site;
// programs that send neither Origin nor Sec-Fetch-Site need only pass Authorize.
//
// # What is kept, and for how long
//
// Counts of decisions are kept by policy. Subjects are kept only if they were denied, or a shadow
// would have denied them: for a policy at most 64 in each 3 minutes, each cut to 512 bytes. They
// leave the page within 18 minutes, and the memory with the next decision or view of the page after
// that. The last error is kept, too. Nothing is written to disk. A policy takes about a quarter of
// a megabyte at most. A subject that is looked up is part of the URL, and so perhaps of an access
// log.
//
// The page shows up to eight subjects of a policy. Counts of their denials are exact while
// fewer than 64 subjects are denied in 3 minutes; otherwise they may have been more.
//
// Counts are of this process only; remaining units are the store's.
package inspect

// Where to change what. A column of the page: page.html and view.go; its data: subject.go (look-up), record.go
// (policies), package redisstats (store). All files: inspect.go is New and the handler, http.go its requests and
// responses, page.go, page.html, page.css and chart.go the page, view.go its data and
// the JSON, subject.go look-up and reset, record.go what is observed (ring.go counts,
// sketch.go denied subjects). kinds.go has the words for kinds of keys.
