package rediskit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// A row explains errors.
type row struct {
	match func(err error) bool
	code  diag.Code
	what  string // see Problem
	hint  string
	fails scope
}

// A scope is which calls to a server fail now.
type scope uint8

const (
	all   scope = iota
	one         // the call with the error
	other       // all, unless the script raised the error: then the key or its value may be the cause
)

const (
	refuses    = "refuses the script"
	notRedis   = "is not a Redis that this store can use"
	denies     = "denies the user a command or a key"
	isNode     = "is a node of a cluster"
	noDatabase = "does not have this database"
	silent     = "does not answer"
	unverified = "has a certificate that does not verify"

	aclLine     = "give the user the ACL line of SECURITY.md, with your Prefix"
	commands    = "the store needs EVALSHA, EVAL and the commands of the ACL line in SECURITY.md"
	userHint    = "check user and password in the URL, and ACL LIST or requirepass of the server"
	clockHint   = "the store counts time by the clock of Redis and cannot work there; use a server that allows TIME in scripts, such as ElastiCache with nodes"
	oneOf       = "want two or more nodes in the URL, redis://host1:6379,host2:6379, or its one address twice"
	otherScheme = "if the server speaks TLS, try rediss:// in place of redis://; if not, try redis:// in place of rediss://"
	seeOptions  = "see redisstore.ClientOptions"
)

// rows explain replies of servers, and then what is no reply. The first row that matches holds.
var rows = []row{
	{begins("WRONGPASS", "AUTH <password> called without any password configured"), diag.RedisAuth, "refuses the password or the user", userHint, all},
	// The second is the reply to a long command.
	{begins("NOAUTH", "Protocol error: unauthenticated"), diag.RedisAuth, "requires a password",
		"want redis://user:password@host:port, or redis://:password@host:port", all},
	{begins("DENIED"), diag.RedisAuth, "is in protected mode", "set a password on the server, or its addresses with bind", all},

	{matches(`^NOPERM.*'select'`), diag.RedisPermission, "denies the user a command", "add +select to the user's ACL, or use database 0", all},
	// A command in the script: before Redis 7.2, and since.
	{begins("NOPERM", "The user executing the script", "ACL failure in script"), diag.RedisPermission, denies, aclLine, all},

	// EVALSHA or EVAL, or a command in the script: Redis, and Valkey.
	{begins("unknown command", "Unknown Redis command called from", "Unknown command called from"), diag.RedisProtocol, notRedis, commands, all},
	// What proxies and managed services answer to EVALSHA or EVAL: Envoy, Codis, Alibaba Cloud.
	{matches(`(?i)^(unsupported command|proxy fail to parse command|(handle request, )?command '?eval(sha)?'? (is )?not (support|allow))`),
		diag.RedisProtocol, notRedis, commands, all},
	// Services refuse TIME in scripts. Before Redis 7.0 the text ends in scripts.
	{begins("This Redis command is not allowed from script"), diag.RedisProtocol, "does not let scripts read its clock (TIME)", clockHint, all},
	// Alibaba Cloud, if its cluster checks the text of scripts.
	{begins("bad lua script for redis cluster"), diag.RedisProtocol, "accepts no script that names a key by a variable",
		"set the instance's parameter script_check_enable to 0", all},

	{begins("DB index is out of range"), diag.RedisProtocol, noDatabase, "use database 0, or one below the server's setting databases (16 by default)", all},
	{begins("SELECT is not allowed in cluster mode"), diag.RedisProtocol, noDatabase, "use database 0", all},
	{begins("This instance has cluster support disabled"), diag.RedisProtocol, "is not a cluster", "want one host in the URL, or redisstore.New and a redis.Client", all},
	// The last is Alibaba Cloud's.
	{begins("MOVED ", "CROSSSLOT", "eval/evalsha command keys must be in same slot"), diag.RedisProtocol, isNode, oneOf, one},

	{begins("READONLY"), diag.RedisRefuses, refuses, "this is a replica; connect to the master, or use Sentinel", all},
	{begins("OOM "), diag.RedisRefuses, refuses, "raise maxmemory, or make room: the policy noeviction refuses writes", all},
	{begins("LOADING"), diag.RedisRefuses, refuses, "it is loading its data; wait until it is done", all},
	{begins("MISCONF"), diag.RedisRefuses, refuses, "it cannot save its data; see the log of Redis", all},
	{begins("NOREPLICAS"), diag.RedisRefuses, refuses, "fewer replicas are connected than min-replicas-to-write asks for", all},
	{begins("MASTERDOWN"), diag.RedisRefuses, refuses, "this is a replica without its master; connect to the master", all},
	{begins("CLUSTERDOWN"), diag.RedisRefuses, refuses, "slots of the cluster have no node; see CLUSTER INFO", all},
	{begins("BUSY "), diag.RedisRefuses, refuses, "another script or a function runs for too long; see SCRIPT KILL and FUNCTION KILL", all},
	{begins("max number of clients"), diag.RedisRefuses, refuses, "raise maxclients, or lower pool_size", all},
	{begins("NOSCRIPT", "TRYAGAIN", "ASK ", "WRONGTYPE"), diag.RedisRefuses, refuses, "", one},
	{begins(""), diag.RedisRefuses, refuses, "", other}, // as of a proxy whose server is gone

	{is(ErrReply), diag.RedisProtocol, notRedis, "a proxy or a server in between may change replies; connect to Redis directly", one},
	{is(ErrKeysApart), diag.RedisKeysApart, "runs scripts away from their keys",
		"let the proxy choose the server by the hash tag of the key, or connect to Redis directly", all},
	{says("can't parse", "invalid reply"), diag.RedisProtocol, notRedis, "check host and port: something else listens there", all},

	{isA[x509.UnknownAuthorityError], diag.RedisCertificate, unverified, "name the file of its CA in SSL_CERT_FILE, or set TLSConfig.RootCAs, " + seeOptions, all},
	{isA[x509.HostnameError], diag.RedisCertificate, unverified, "connect to a name among the certificate's SANs, or issue one with this name", all},
	{says("certificate has expired"), diag.RedisCertificate, unverified, "renew the certificate, or set this machine's clock", all},
	{says("x509: "), diag.RedisCertificate, unverified, "", all},
	{says("tls: certificate required", "tls: bad certificate", "tls: unknown certificate"), diag.RedisCertificate,
		"wants a client certificate that it trusts", "set TLSConfig.Certificates, " + seeOptions + ", or tls-auth-clients no on the server", all},

	{is(redis.ErrPoolTimeout), diag.RedisUnreachable, "has no free connection", "raise pool_size, or look for slow commands; all connections of the pool were in use", all},
	{isA[tls.RecordHeaderError], diag.RedisUnreachable, silent, "the server may not speak TLS; " + otherScheme, all},
	{IsTimeout, diag.RedisUnreachable, silent,
		"check host, port and firewall; " + otherScheme + "; a distant Redis needs a longer Timeout, and TLS needs Protocol: 2 in the options of the client", all},
	{says("refused"), diag.RedisUnreachable, silent, "check that Redis runs there, and host and port", all},
	{says("no such host"), diag.RedisUnreachable, silent, "check the host name", all},
	{says("EOF", "reset", "broken pipe"), diag.RedisUnreachable, silent, otherScheme + "; or the server wants a password or a client certificate, has reached maxclients, or is a proxy such as twemproxy, " +
		"which closes connections on HELLO, with which go-redis begins: connect to the servers behind it, to several by a redis.Ring", all},
	{says("no such file"), diag.RedisUnreachable, silent, "check that Redis has unixsocket set to this path", all},
	{is(redis.Nil), diag.RedisUnreachable, silent, "", one}, // no script replies with nil
	{func(error) bool { return true }, diag.RedisUnreachable, silent, "", all},
}

// A reply is an error that a server has answered, as commandError returns it.
type reply string

func (r reply) Error() string { return string(r) }

// begins matches replies that begin so.
func begins(prefixes ...string) func(error) bool {
	return func(err error) bool {
		r, ok := errors.AsType[reply](err)
		return ok && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(string(r), p) })
	}
}

// matches matches replies by a regular expression.
func matches(pattern string) func(error) bool {
	form := regexp.MustCompile(pattern)
	return func(err error) bool {
		r, ok := errors.AsType[reply](err)
		return ok && form.MatchString(string(r))
	}
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

func says(parts ...string) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(err.Error(), part) })
	}
}

// explain returns the row of an error.
func explain(err error) row {
	var of redis.Error
	if IsReply(err) && errors.As(err, &of) {
		err = reply(commandError(of.Error()))
	}
	return rows[slices.IndexFunc(rows, func(r row) bool { return r.match(err) })] // the last row matches
}

// Down reports whether an error means that all calls to the server fail now, and not only one. So
// does an error that is not known, unless it was raised in the script.
func Down(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	fails := explain(err).fails
	return fails == all || fails == other && !strings.Contains(err.Error(), "user_script:")
}

// IsReply reports whether an error is one that the server has answered.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
}

// Unknown reports whether an error is a reply, and none of those that this package explains.
func Unknown(err error) bool { return explain(err).fails == other }

// commandError returns the error of the command that failed, without "ERR " and without what Redis
// before 7.0 adds for a command in a script:
//
//	ERR Error running script (call to f_<sha>): @user_script:57: @user_script: 57: -OOM command not allowed ...
func commandError(text string) string {
	return text[len(beforeCommandError.FindString(text)):]
}

var beforeCommandError = regexp.MustCompile(`^(ERR )?(Error running script \(call to f_[0-9a-f]+\): (@user_script: ?[0-9]+: )*-?)?`)
