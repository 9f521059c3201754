// Package ratelimitotel reports the decisions of limiters as OpenTelemetry metrics
// and span attributes.
//
//	if err := ratelimitotel.Instrument(otel.GetMeterProvider(), limiter); err != nil {
//		return err
//	}
//
// Serve metrics that are scraped, such as Prometheus's /metrics, outside the limiter, or scrapes
// may be rate limited too.
//
// # Outcomes
//
// A policy that limits a request has an outcome, the last in this list that holds:
//
//	allowed        the policy allows the request; others may deny it
//	shadow_denied  a shadow policy would have denied it
//	delayed        the request is allowed with a delay of this policy
//	degraded       the policy could not be decided as configured; see its OnFailure
//	denied         the policy denies it, in the store, on this server or by a ban
//
// The outcome of the request is the last in the list that one of its policies has. If a
// policy denies the request with 503 or by a ban, others may have no outcome.
//
// # Metrics
//
// Their attributes contain no key and no part of a request.
//
//	ratelimit.decisions          {decision}  counter, by ratelimit.policy and
//	                                         ratelimit.outcome: outcomes of policies for
//	                                         requests
//	ratelimit.decision.duration  s           histogram, by ratelimit.outcome: the time
//	                                         of a decision in which a policy has an
//	                                         outcome, without a delay
//	ratelimit.quota.near_end     {request}   counter, by ratelimit.policy: requests that
//	                                         a quota in the store allowed and that left a
//	                                         tenth of it or less
//
// [InstrumentOverrides] adds ratelimit.overrides, a gauge by ratelimit.override.kind (limit or
// ban): the overrides that this server follows.
//
// [InstrumentInFlight] adds ratelimit.inflight.held, a gauge of the slots that this server holds, and
// ratelimit.inflight.denied, a counter of requests and jobs that found no free slot, both by
// ratelimit.policy: the name of the limit, or empty for jobs.
//
// Limiters on a redisstore.Store, or on another redisstats.Store, add
//
//	ratelimit.redis.batches         {batch}      counter: batches that Redis answered
//	ratelimit.redis.batch.duration  s            counter: the total time of these
//	ratelimit.redis.operations      {operation}  counter: admissions and refunds in them,
//	                                             each part of a divided one
//	ratelimit.redis.failed_batches  {batch}      counter: batches without an answer, or
//	                                             with an outage as the answer
//	ratelimit.redis.cached_denials  {operation}  counter: denials of the store without a
//	                                             call of Redis
//	ratelimit.redis.local_units     {unit}       counter: units that this server has
//	                                             granted alone
//	ratelimit.redis.reported_units  {unit}       counter: of local_units, those that were
//	                                             charged in Redis later
//	ratelimit.redis.lost_units      {unit}       counter: of local_units, those given up
//	ratelimit.redis.instances       {server}     gauge: stores that share the limits, as
//	                                             counted last, the most of several counts;
//	                                             0 before the first count
//	ratelimit.redis.breaker.status  {breaker}    1 for the state of a server's breaker and
//	                                             0 for the others, added for stores that
//	                                             share the server, by server.address,
//	                                             server.port and
//	                                             ratelimit.redis.breaker.state: closed
//	                                             (in use), half_open (tried again) or
//	                                             open (no requests are sent to it)
//
// # Span attributes
//
// If a policy has an outcome, the current span of the request, if it is recorded, gets
// attributes: ratelimit.outcome; ratelimit.policy, the first policy that the outcome comes from; and
// ratelimit.remaining, that policy's remaining units, unless there is no count, as for a ban.
// A further limiter with the same span overwrites what it sets.
package ratelimitotel

// Where to change what: decisions.go has the metrics of decisions, outcome.go their
// outcomes and the span attributes, redis.go the metrics of a store, overrides.go and inflight.go those
// of these packages. otel.go registers them.
