// Package ratelimit has no code: it names packages of this project, which limits
// HTTP requests and remote procedure calls.
//
// To limit requests, import the adapter of your router as ratelimit:
//
//   - [github.com/seed-e377111c/ratelimit/adapters/nethttp]
//   - [github.com/seed-e377111c/ratelimit/adapters/chi]
//   - [github.com/seed-e377111c/ratelimit/adapters/gin]
//   - [github.com/seed-e377111c/ratelimit/adapters/echo] (Echo v4)
//   - [github.com/seed-e377111c/ratelimit/adapters/echov5] (Echo v5)
//   - [github.com/seed-e377111c/ratelimit/adapters/grpc]
//   - [github.com/seed-e377111c/ratelimit/adapters/connect]
//
// An adapter repeats names of package [github.com/seed-e377111c/ratelimit/middleware],
// which documents them. Use it with these:
//
//   - [github.com/seed-e377111c/ratelimit/gcra] has the limits, and a store in memory.
//   - [github.com/seed-e377111c/ratelimit/gcra/redisstore] is a store in Redis.
//   - [github.com/seed-e377111c/ratelimit/keyfunc] has key functions: who or what a
//     request counts for.
//
// With adapters/nethttp, this allows 10 requests at once, and then one every 6 seconds, for
// each address (of IPv6, each /64):
//
//	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
//		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(10)},
//	)
//	http.ListenAndServe("127.0.0.1:8080", limit(mux))
//
// Optional packages:
//
//   - [github.com/seed-e377111c/ratelimit/middleware/policyfile] reads policies from
//     YAML and reloads them.
//   - [github.com/seed-e377111c/ratelimit/middleware/inspect] is a page that shows
//     what a limiter does.
//   - [github.com/seed-e377111c/ratelimit/middleware/fleet] reads the limits and bans that
//     operators set while servers run.
//   - [github.com/seed-e377111c/ratelimit/adapters/otel] reports to OpenTelemetry.
//   - [github.com/seed-e377111c/ratelimit/gcra/storetest] has tests for your own store.
//
// For calls that a program makes to limited APIs:
//
//   - [github.com/seed-e377111c/ratelimit/outbound/httpclient] limits an http.Client.
//   - [github.com/seed-e377111c/ratelimit/outbound/turns] makes many processes take
//     turns.
//   - [github.com/seed-e377111c/ratelimit/outbound/slidinglog] has stores for strict
//     windows.
//
// README.md and the pages in docs/ say more.
package ratelimit
