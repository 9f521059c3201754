package diag

import "log/slog"

// Code names a kind of problem. Codes are stable: users search for them, and the section of
// docs/troubleshooting.md about a code has its name.
type Code string

// Problems of the store.
const (
	RedisUnreachable Code = "redis-unreachable" // refused connections, timeouts, closed connections
	RedisAuth        Code = "redis-auth"        // wrong or missing password
	RedisPermission  Code = "redis-permission"  // the ACL lacks a command or a key
	RedisCertificate Code = "redis-certificate" // the certificate does not verify
	RedisProtocol    Code = "redis-protocol"    // not a Redis, or one without scripts or the database
	RedisKeysApart   Code = "redis-keys-apart"  // a proxy that runs scripts away from their keys
	RedisRefuses     Code = "redis-refuses"     // READONLY, OOM, LOADING, ...: connected, but commands fail
	RedisEvicts      Code = "redis-evicts"      // a maxmemory-policy that evicts keys
	RedisGrants      Code = "redis-grants"      // more keys were granted alone than the store can charge later
	InstancesTooLow  Code = "instances-too-low" // more servers share the limits than Config.Instances says
	OverridesUnread  Code = "overrides-unread"  // the overrides of operators, or one of them, cannot be read
	StoreFailed      Code = "store-failed"      // a store that does not log by itself returned an error
)

// Problems of a limiter's set-up.
const (
	PolicyFailed    Code = "policy-failed"     // Key, LimitFor, Override, Cost or Skip returned an error, an invalid value, or panicked
	ProxyIgnored    Code = "proxy-ignored"     // X-Forwarded-For is present, and the key does not read it
	AddrOverwritten Code = "addr-overwritten"  // middleware in front has put an address into r.RemoteAddr
	LimiterTwice    Code = "limiter-twice"     // one limiter charged one request twice
	SharedName      Code = "shared-name"       // two limits share a policy name and a store
	AnonymousOnly   Code = "anonymous-only"    // none of a policy's first requests had a user, or all had an empty key
	CostAboveBurst  Code = "cost-above-burst"  // a request costs more than a full bucket holds, so it can never pass
	JWTRejected     Code = "jwt-rejected"      // tokens have no exp, the HMAC key is empty, or none of the first tokens verified
	RouteUnknown    Code = "route-unknown"     // the key is the route, and the route is never known
	RouteApart      Code = "route-apart"       // a policy's pattern has a parameter where a route has text, so it does not apply
	SigninUnsettled Code = "signin-unsettled"  // an attempt to sign in stays charged, or its penalty is not
	SlotNotReleased Code = "slot-not-released" // a slot of package inflight was forgotten, or held longer than MaxHold
)

// Level returns ERROR for a wrong configuration of Redis, such as a wrong password, INFO for what
// may be meant so, and WARN for other codes.
func (c Code) Level() slog.Level {
	switch c {
	case RedisAuth, RedisPermission, RedisCertificate, RedisProtocol, RedisKeysApart:
		return slog.LevelError
	case RouteApart:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
