// Package inspect shows what a limiter is doing, to whoever runs it: a page and
// the same as JSON.
//
//	page, err := inspect.New(inspect.Config{Authorize: isAdmin}, limiter)
//	...
//	mux.Handle("/debug/ratelimit", page)
//
// It shows the policies as they are now, what they decided in the last 15
// minutes, whom they refused most, and how the store is. It looks up one
// subject, that is what a policy's Key returns ("ip:192.0.2.7"): what is left in
// each policy and when that is full again; and it resets a subject, which fills
// its buckets. Other servers on the same Redis notice a reset after its DenialTTL
// at most.
//
// The page needs no JavaScript and nothing from elsewhere. It comes as JSON with
// ?format=json or an Accept header that prefers application/json, looks a
// subject up with ?subject=ip:192.0.2.7, and resets it with a POST of the fields
// subject and policy (one or several). A reset is answered with a redirect to
// the subject and, for programs that do not follow it, a line that says what was
// done; a mistake with a line, too, unless HTML or JSON is preferred. Links and
// forms are relative to wherever it is mounted, with or without
// [http.StripPrefix], and all paths that lead to it show the same.
//
// Mount it where the limiter does not stand. What is behind a limiter, such as
// all that a gin or echo router has once it uses one, is limited like the rest:
// each look would be counted, and whoever is refused could not look why.
//
// # Who may look
//
// Subjects are addresses and names of people, and a reset takes limits away. So
// there is no way to mount it without saying who may: [New] fails without
// [Config.Authorize]. A POST that a browser sends from another site is refused
// with 403 ([http.CrossOriginProtection]); programs, which send neither Origin
// nor Sec-Fetch-Site, have Authorize alone to pass.
//
// # What is kept, and for how long
//
// Counts of decisions, by policy, in steps of 15 seconds for 15 minutes. Of
// subjects only those that were refused, by policy: at most 64 in each 3
// minutes, each cut to 512 bytes. They leave the page after 15 to 18 minutes,
// and the memory with the next decision or look at the page after that. Of the
// errors behind decisions in an outage the last one is kept, and shown for 15
// minutes. Nothing is written anywhere, and no more is known after a restart.
// That is some 40 kB a policy that refuses, and at most 230 kB, whatever clients
// do. A subject that is looked up stands in the URL, and so perhaps in a log of
// access.
//
// How often a subject was refused is counted by Space-Saving (Metwally, Agrawal,
// El Abbadi: Efficient computation of frequent and top-k elements in data
// streams, 2005) with 64 counters for each 3 minutes. Whoever has had more than
// one 64th of a policy's refusals is found, the count is exact while no more
// than 64 subjects are refused in 3 minutes, and otherwise given with both its
// bounds, which are no further apart than one 64th of all refusals.
//
// The counts are of this process alone; what is left to a subject is read from
// the store, which all servers share.
package inspect
