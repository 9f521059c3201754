// Package inspect is a page, and the same data as JSON, that shows operators what a
// limiter does.
//
//	page, err := inspect.New(inspect.Config{Authorize: isAdmin}, limiter)
//	...
//	mux.Handle("/debug/ratelimit", page)
//
// It shows the policies in force, what each counts by, their decisions of the last 15
// minutes, the subjects denied most, and the state of the store. Policies with the most
// denials come first; the page opens the first five. It looks up a subject, which is what a
// policy's Key returns ("ip:192.0.2.7"): where the limit is known, the remaining units and
// when the bucket is full. And it resets a subject, which fills its buckets in the policies
// that are chosen; not where an override bans it or sets no limit. Other servers on the same
// Redis may take their DenialTTL to notice it.
//
// The page needs no JavaScript and loads nothing. It responds with JSON to ?format=json
// or, without a format, to an Accept field with application/json and without text/html. It
// looks up a subject with ?subject=ip:192.0.2.7, and resets it with a POST of a URL-encoded
// form with subject and policy (one or several). The response to a reset is a redirect to
// the subject, with a line of text for programs that do not follow it. The response to a
// mistake is a line of text or, of a reset, may be the page or JSON. Links and forms are
// relative to the path of the page, with or without [http.StripPrefix]; all paths that
// lead to the page show the same.
//
// Mount the page outside the limiter, or a denied client cannot open it: with echo and gin, on
// a router that does not use the limiter.
//
// # Authorization
//
// Subjects are addresses and names of people, and a reset lifts limits. So [New] fails
// without [Config.Authorize]. A POST that a browser sends from another site is denied
// with 403 ([http.CrossOriginProtection]). Programs that send neither Origin nor
// Sec-Fetch-Site need only pass Authorize.
//
// # What is kept, and for how long
//
// Counts of decisions are kept by policy, in steps of 15 seconds for 15 minutes. So are
// the kinds of keys, the lower-case word before a colon ("ip", "sub") of at most 16
// characters, at most 8 by policy: a key function is not asked what it counts by. Subjects
// are kept only if they were denied, or a shadow would have denied them, by policy: at
// most 64 in each 3 minutes, each cut to 512 bytes. They leave the page within 18 minutes,
// and the memory with the next decision or view of the page after that. Of the errors of
// degraded decisions the last one is kept, and shown for 15 minutes. Nothing is written to
// disk, and a restart loses everything. A policy takes a quarter of a megabyte at most,
// whatever clients do. A subject that is looked up is part of the URL, and so perhaps of
// an access log.
//
// Denials of a subject are counted by Space-Saving (Metwally, Agrawal, El Abbadi:
// Efficient computation of frequent and top-k elements in data streams, 2005) with 64
// counters for each 3 minutes. The page shows up to eight subjects of a policy. Counts are
// exact while fewer than 64 subjects are denied in 3 minutes. Otherwise two bounds may be
// shown.
//
// Counts are of this process only. Remaining units are those of the store.
package inspect

// Where to change what: inspect.go is New and the handler, http.go its requests and
// responses, page.go, page.html, page.css and chart.go the page, view.go its data and
// the JSON, subject.go look-up and reset, record.go what is observed (ring.go counts,
// sketch.go denied subjects, recent.go limits and the kinds of kinds.go).
