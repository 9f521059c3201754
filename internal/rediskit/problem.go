package rediskit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Conn is what is known about the connection on which an error occurred.
type Conn struct {
	TLS      bool // the client speaks TLS
	Cluster  bool // the client knows that the server is a node of a cluster
	Answered bool // the server has answered the script before
}

// Problem is what an error says about a server.
type Problem struct {
	Code  diag.Code // "" if the error says nothing about the server
	What  string    // follows the word redis: "refuses the password or the user"
	Cause string    // the error on one line, without the arguments of a command
	Hint  string    // what to change or to look at, or ""

	// Timeout says that no answer came in time, which on a slow network or a
	// busy machine happens to a server that is well.
	Timeout bool
}

// Diagnose explains an error of a client or a server.
func Diagnose(err error, c Conn) Problem {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) || redis.IsTryAgainError(err) {
		return Problem{} // closed by the program; TRYAGAIN: a slot of the cluster moves
	}
	p := Problem{Cause: cause(err)}
	text := p.Cause
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	set := func(code diag.Code, what, hint string) Problem {
		p.Code, p.What, p.Hint = code, what, hint
		return p
	}

	const (
		unserved = "does not serve the script"
		noRedis  = "is no Redis that this store can use"
	)
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var answer redis.Error
	var network net.Error
	switch {
	case errors.Is(err, ErrReply):
		return set(diag.RedisProtocol, noRedis, "a proxy or a server in between may change replies; connect to Redis directly")

	// The connection.
	case errors.As(err, &unknown):
		return set(diag.RedisCertificate, "has a certificate that does not verify", "name the file of its CA in SSL_CERT_FILE, or set TLSConfig.RootCAs, see gcra.Options")
	case errors.As(err, &host):
		return set(diag.RedisCertificate, "has a certificate that does not verify", "connect to a name that the certificate has")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return set(diag.RedisCertificate, "has a certificate that does not verify", "renew the certificate, or set this machine's clock")
	case errors.As(err, &verify), has("x509: "):
		return set(diag.RedisCertificate, "has a certificate that does not verify", "")
	case has("tls: certificate required", "tls: bad certificate", "tls: unknown certificate"):
		return set(diag.RedisCertificate, "wants a client certificate that it trusts", "set TLSConfig.Certificates, see gcra.Options, or tls-auth-clients no on the server")
	case errors.As(err, &record):
		return set(diag.RedisUnreachable, "does not answer", "the server may not speak TLS; try redis:// in place of rediss://")
	case has("can't parse", "invalid reply"):
		return set(diag.RedisProtocol, noRedis, "check host and port: something else listens there")
	case errors.Is(err, redis.ErrPoolTimeout):
		return set(diag.RedisUnreachable, "has no free connection", "raise pool_size, or look for slow commands; all connections of the pool were in use")
	case !errors.As(err, &answer):
		hint := ""
		switch {
		case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout():
			p.Timeout = true
			if c.TLS && !c.Answered {
				hint = "the server may not speak TLS; try redis:// in place of rediss://"
			} else if !c.Answered {
				hint = "check host, port and firewall; a distant Redis needs a longer Timeout"
			}
		case has("refused"):
			hint = "check that Redis runs there, and host and port"
		case has("no such host"):
			hint = "check the host name"
		case !c.TLS && !c.Answered && has("EOF", "reset", "broken pipe"):
			hint = "the server may speak TLS, try rediss:// in place of redis://; or it has reached maxclients"
		}
		return set(diag.RedisUnreachable, "does not answer", hint)

	// Answers. In a script, Redis 6.2 puts them behind "ERR Error running script".
	case has("WRONGPASS", "without any password configured", "invalid password"):
		return set(diag.RedisAuth, "refuses the password or the user", "check user and password in the URL, and ACL LIST or requirepass of the server")
	case has("DENIED"):
		return set(diag.RedisAuth, "is in protected mode", "set a password on the server, or its addresses with bind")
	case has("NOAUTH"):
		return set(diag.RedisAuth, "requires a password", "want redis://user:password@host:port, or redis://:password@host:port")
	case has("'select'"):
		return set(diag.RedisPermission, "denies the user a command", "add +select to the user's ACL, or use database 0")
	case has("NOPERM", "The user executing the script", "ACL failure in script"):
		return set(diag.RedisPermission, "denies the user a command or a key", "give the user the ACL line of SECURITY.md, with your Prefix")
	case has("unknown command", "nknown Redis command"):
		return set(diag.RedisProtocol, noRedis, "the store needs EVALSHA, EVAL and the commands of the ACL line in SECURITY.md")
	case has("DB index is out of range", "invalid DB index"):
		return set(diag.RedisProtocol, "does not have this database", "use a database below the server's setting databases (16 by default)")
	case has("SELECT is not allowed in cluster mode"):
		return set(diag.RedisProtocol, "does not have this database", "a cluster has database 0 only")
	case has("cluster support disabled"):
		return set(diag.RedisProtocol, "is no cluster", "want one host in the URL, or NewRedis and a redis.Client")
	case has("MOVED ", "CROSSSLOT") && !c.Cluster:
		return set(diag.RedisProtocol, "is a node of a cluster", "want two or more nodes in the URL, redis://host1:6379,host2:6379")
	}
	for _, r := range refusals {
		if has(r.word) {
			return set(diag.RedisRefuses, unserved, r.hint)
		}
	}
	return set(diag.RedisRefuses, unserved, "")
}

var refusals = []struct{ word, hint string }{
	{"READONLY", "this is a replica; connect to the master, or use Sentinel"},
	{"OOM ", "raise maxmemory, or make room: the policy noeviction refuses writes"},
	{"LOADING", "it loads its data and serves when it is done"},
	{"MISCONF", "it cannot save its data; see the log of Redis"},
	{"NOREPLICAS", "fewer replicas are connected than min-replicas-to-write asks for"},
	{"MASTERDOWN", "this is a replica without its master; connect to the master"},
	{"CLUSTERDOWN", "slots of the cluster have no node; see CLUSTER INFO"},
	{"BUSY", "another script runs for too long; see SCRIPT KILL"},
	{"max number of clients", "raise maxclients, or lower pool_size"},
	{"WRONGTYPE", "something else uses keys of the same Prefix; set another"},
}

// scriptPlace is what Redis 7 adds to an error of a command in a script.
var scriptPlace = regexp.MustCompile(`,? script: [0-9a-f]{40}, on @user_script:\d+`)

// cause is the text of an error for a log. An unknown command is repeated with
// its arguments, which may be a password or keys.
func cause(err error) string {
	text := err.Error()
	var op *net.OpError
	var call *os.SyscallError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		text = "lookup " + dns.Name + ": " + dns.Err
	case errors.As(err, &call):
		text = call.Err.Error()
	case errors.As(err, &op) && op.Err != nil:
		text = op.Err.Error()
	case errors.Is(err, io.EOF):
		text = "connection closed (EOF)"
	case text == context.DeadlineExceeded.Error():
		text = "timed out"
	}
	text, _, _ = strings.Cut(text, ", with args beginning with")
	text = scriptPlace.ReplaceAllString(text, "")
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' }); i >= 0 {
		text = text[:i]
	}
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	text = strings.TrimSuffix(text, ": "+context.DeadlineExceeded.Error())
	return strings.TrimRight(text, ". ")
}

// ServerError is what [Diagnose] says in one sentence.
type ServerError struct {
	Server string // its address
	Problem
	Err error
}

func (e *ServerError) Error() string {
	s := "redis at " + e.Server + " " + e.What + ": " + e.Cause
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *ServerError) Unwrap() error { return e.Err }
