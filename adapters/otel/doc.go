// Package ratelimitotel turns what limiters decide into OpenTelemetry metrics
// and span attributes.
//
//	if err := ratelimitotel.Instrument(limiter); err != nil {
//		return err
//	}
//
// Serve metrics that are scraped, such as Prometheus's /metrics, where the limiter
// does not stand: on a port of their own, as examples/metrics does, or outside
// the handlers that it wraps. Behind it scrapes are counted, and in the end
// refused.
//
// # Outcomes
//
// Each policy that applies to a request has one outcome there, the last in this
// list that holds:
//
//	allowed         it admits the request, whatever the other policies say
//	shadow_refused  a shadow would have refused it
//	delayed         the request passes, and this policy holds it back
//	degraded        it could not be decided as asked and followed its OnFailure: decided
//	                on this server's state, passed uncounted, or refused with 503
//	refused         its limit is used up, by the store's word or this server's: 429
//
// The outcome of the request is the last in the list that one of its policies
// has. So refusals are counted during an outage, too, and a shadow's numbers are
// free of outages. A policy with nothing wrong that was not asked, because
// another one had shut the request out with 503, has no outcome.
//
// # Metrics
//
// The attributes below are all there are. No key and no part of a request is
// among them, so no client can add a series.
//
//	ratelimit.decisions          {decision}  counter, by ratelimit.policy and
//	                                         ratelimit.outcome: one for each policy
//	                                         that has an outcome for a request
//	ratelimit.decision.duration  s           histogram, by ratelimit.outcome: how long
//	                                         a request was being decided, without the
//	                                         delay that it was then held back for
//
// The count of the histogram is the number of requests by their outcome; requests
// to which no policy applies are not in it. All five outcomes of a policy are
// there from the start, at 0. Policies that are added by a reload are counted
// under their names as long as there have been no more than 256, then together
// as "_OTHER". A request costs one allocation, the Results that a limiter makes
// for its observers, and another where a policy is degraded.
//
// Limiters on a redisstore.Store, or on another store with its Stats method, add
//
//	ratelimit.redis.batches         {batch}      counter: batches that Redis answered
//	ratelimit.redis.batch.duration  s            counter: what these took together
//	ratelimit.redis.operations      {operation}  counter: admissions and refunds in them;
//	                                             operations over batches is the mean size
//	ratelimit.redis.failed_batches  {batch}      counter: batches that got no answer, or an
//	                                             outage for one
//	ratelimit.redis.cached_denials  {operation}  counter: denied without asking Redis
//	ratelimit.redis.breaker.status  {breaker}    1 for the state that a server's breaker is
//	                                             in and 0 for the others, by server.address,
//	                                             server.port and
//	                                             ratelimit.redis.breaker.state, which is
//	                                             closed (in use), half_open (tried again) or
//	                                             open (left alone)
//
// # Span attributes
//
// The current span of the request, if it is recorded, gets ratelimit.outcome,
// ratelimit.policy, which is the policy that the outcome comes from (of several
// the one closest to its limit), and ratelimit.remaining, what that policy has
// left, unless it was not decided at all. Where a request passes several
// limiters, the last one's attributes stay.
package ratelimitotel
