package rediskit

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// answer explains an error, most often the reply of a server.
type answer struct {
	prefix string // of the error, as commandError returns it
	code   diag.Code
	what   string // see Problem
	hint   string
	down   bool // all calls to the server fail now, not only this one
}

const (
	refuses  = "refuses the script"
	notRedis = "is not a Redis that this store can use"
	denies   = "denies the user a command or a key"
	isNode   = "is a node of a cluster"

	aclLine   = "give the user the ACL line of SECURITY.md, with your Prefix"
	commands  = "the store needs EVALSHA, EVAL and the commands of the ACL line in SECURITY.md"
	userHint  = "check user and password in the URL, and ACL LIST or requirepass of the server"
	noClock   = "does not let scripts read its clock (TIME)"
	clockHint = "the store counts time by the clock of Redis and cannot work there; use a server that allows TIME in scripts, such as ElastiCache with nodes"

	oneOf = "want two or more nodes in the URL, redis://host1:6379,host2:6379, or its one address twice"
)

var answers = []answer{
	{"WRONGPASS", diag.RedisAuth, "refuses the password or the user", userHint, true},
	{"AUTH <password> called without any password configured", diag.RedisAuth, "refuses the password or the user", userHint, true},
	{"NOAUTH", diag.RedisAuth, "requires a password", "want redis://user:password@host:port, or redis://:password@host:port", true},
	{"Protocol error: unauthenticated", diag.RedisAuth, "requires a password", "want redis://user:password@host:port, or redis://:password@host:port", true}, // the reply to a long command
	{"DENIED", diag.RedisAuth, "is in protected mode", "set a password on the server, or its addresses with bind", true},

	// A command in the script: before Redis 7.2, and since.
	{"NOPERM", diag.RedisPermission, denies, aclLine, true},
	{"The user executing the script", diag.RedisPermission, denies, aclLine, true},
	{"ACL failure in script", diag.RedisPermission, denies, aclLine, true},

	// EVALSHA or EVAL, or a command in the script: Redis, and Valkey.
	{"unknown command", diag.RedisProtocol, notRedis, commands, true},
	{"Unknown Redis command called from", diag.RedisProtocol, notRedis, commands, true},
	{"Unknown command called from", diag.RedisProtocol, notRedis, commands, true},

	// Services refuse TIME in scripts. Before Redis 7.0 the text ends in scripts.
	{"This Redis command is not allowed from script", diag.RedisProtocol, noClock, clockHint, true},

	// Alibaba Cloud, if its cluster checks the text of scripts.
	{"bad lua script for redis cluster", diag.RedisProtocol, "accepts no script that names a key by a variable", "set the instance's parameter script_check_enable to 0", true},

	{"DB index is out of range", diag.RedisProtocol, "does not have this database", "use database 0, or one below the server's setting databases (16 by default)", true},
	{"SELECT is not allowed in cluster mode", diag.RedisProtocol, "does not have this database", "use database 0", true},
	{"This instance has cluster support disabled", diag.RedisProtocol, "is not a cluster", "want one host in the URL, or redisstore.New and a redis.Client", true},
	{"MOVED ", diag.RedisProtocol, isNode, oneOf, false},
	{"CROSSSLOT", diag.RedisProtocol, isNode, oneOf, false},
	{"eval/evalsha command keys must be in same slot", diag.RedisProtocol, isNode, oneOf, false}, // Alibaba Cloud

	{"READONLY", diag.RedisRefuses, refuses, "this is a replica; connect to the master, or use Sentinel", true},
	{"OOM ", diag.RedisRefuses, refuses, "raise maxmemory, or make room: the policy noeviction refuses writes", true},
	{"LOADING", diag.RedisRefuses, refuses, "it is loading its data; wait until it is done", true},
	{"MISCONF", diag.RedisRefuses, refuses, "it cannot save its data; see the log of Redis", true},
	{"NOREPLICAS", diag.RedisRefuses, refuses, "fewer replicas are connected than min-replicas-to-write asks for", true},
	{"MASTERDOWN", diag.RedisRefuses, refuses, "this is a replica without its master; connect to the master", true},
	{"CLUSTERDOWN", diag.RedisRefuses, refuses, "slots of the cluster have no node; see CLUSTER INFO", true},
	{"BUSY ", diag.RedisRefuses, refuses, "another script or a function runs for too long; see SCRIPT KILL and FUNCTION KILL", true},
	{"max number of clients", diag.RedisRefuses, refuses, "raise maxclients, or lower pool_size", true},

	// Errors of one call.
	{"NOSCRIPT", diag.RedisRefuses, refuses, "", false},
	{"TRYAGAIN", diag.RedisRefuses, refuses, "", false},
	{"ASK ", diag.RedisRefuses, refuses, "", false},
	{"WRONGTYPE", diag.RedisRefuses, refuses, "", false},

	{"", diag.RedisRefuses, refuses, "", true}, // any other, as of a proxy whose server is gone; see Down
}

// noScripts matches what proxies and managed services answer to EVALSHA or EVAL, in place of
// "unknown command": Envoy, Codis, Alibaba Cloud.
var noScripts = regexp.MustCompile(`(?i)^(unsupported command|proxy fail to parse command|(handle request, )?command '?eval(sha)?'? (is )?not (support|allow))`)

// explain returns the row for an error: of answers for a reply, otherwise of failures.
func explain(err error) answer {
	text := err.Error()
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		i := 0
		for !failures[i].match(err) {
			i++ // the last row matches
		}
		f := failures[i]
		return answer{text, f.code, f.what, f.hint, true}
	}

	text = commandError(reply.Error())
	if noScripts.MatchString(text) {
		text = "unknown command"
	}
	i := 0
	for !strings.HasPrefix(text, answers[i].prefix) {
		i++ // the last row has an empty prefix
	}
	a := answers[i]
	if a.code == diag.RedisPermission && strings.Contains(text, "'select'") {
		a.what, a.hint = "denies the user a command", "add +select to the user's ACL, or use database 0"
	}
	return a
}

// Down reports whether an error means that all calls to the server fail now, and not only one. So
// does an error that is not known, unless it was raised in the script: then the key or its value may
// be the cause.
func Down(err error) bool {
	if err == nil || errors.Is(err, ErrReply) || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return false
	}
	return explain(err).down && !(Unknown(err) && strings.Contains(err.Error(), "user_script:"))
}

// IsReply reports whether an error is one that the server has answered.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
}

// Unknown reports whether an error is a reply, and none of those that this package explains.
func Unknown(err error) bool { return IsReply(err) && explain(err).prefix == "" }

// commandError returns the error of the command that failed, without "ERR " and without what Redis
// before 7.0 adds for a command in a script:
//
//	ERR Error running script (call to f_<sha>): @user_script:57: @user_script: 57: -OOM command not allowed ...
func commandError(text string) string {
	return text[len(beforeCommandError.FindString(text)):]
}

var beforeCommandError = regexp.MustCompile(`^(ERR )?(Error running script \(call to f_[0-9a-f]+\): (@user_script: ?[0-9]+: )*-?)?`)
