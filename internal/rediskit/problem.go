package rediskit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Conn describes the connection of an error.
type Conn struct {
	Cluster  bool // the client knows that the server is a node of a cluster
	Answered bool // the server has replied to the script before
}

// Problem explains an error of a server in plain words.
type Problem struct {
	Code  diag.Code // "" if the error says nothing about the server
	What  string    // follows the word redis: "refuses the password or the user"
	Cause string    // the error on one line, without the arguments of a command
	Hint  string    // what to change or to look at, or ""
}

// String returns "refuses the password or the user: <cause>; <hint>", or "" without a code.
func (p Problem) String() string {
	switch {
	case p.Code == "":
		return ""
	case p.Hint == "":
		return p.What + ": " + p.Cause
	}
	return p.What + ": " + p.Cause + "; " + p.Hint
}

// Diagnose explains an error of a client or a server.
func Diagnose(err error, c Conn) Problem {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) || redis.IsTryAgainError(err) {
		return Problem{} // closed by the program; TRYAGAIN: a slot of the cluster moves
	}

	a := explain(err)
	p := Problem{a.code, a.what, cause(err), a.hint}
	switch {
	case c.Cluster && errors.Is(err, redis.Nil): // no script replies with nil
		p.Code, p.What = diag.RedisProtocol, "is a cluster whose nodes do not say their addresses"
		p.Hint = "set cluster-preferred-endpoint-type to ip or hostname on every node; go-redis cannot use unknown-endpoint"
	case c.Cluster && a.what == isNode: // a slot moves
		p.Code, p.What, p.Hint = diag.RedisRefuses, refuses, ""
	case c.Answered && a.what == silent:
		p.Hint = "" // it is about the set-up, which has worked
	}
	return p
}

// failures explain errors that are not a server's reply. The first that matches holds.
var failures = []struct {
	match      func(err error) bool
	code       diag.Code
	what, hint string
}{
	{is(ErrReply), diag.RedisProtocol, notRedis, "a proxy or a server in between may change replies; connect to Redis directly"},
	{is(ErrKeysApart), diag.RedisKeysApart, "runs scripts away from their keys", "let the proxy choose the server by the hash tag of the key, or connect to Redis directly"},
	{says("can't parse", "invalid reply"), diag.RedisProtocol, notRedis, "check host and port: something else listens there"},

	{isA[x509.UnknownAuthorityError], diag.RedisCertificate, unverified, "name the file of its CA in SSL_CERT_FILE, or set TLSConfig.RootCAs, " + seeOptions},
	{isA[x509.HostnameError], diag.RedisCertificate, unverified, "connect to a name among the certificate's SANs, or issue one with this name"},
	{says("certificate has expired"), diag.RedisCertificate, unverified, "renew the certificate, or set this machine's clock"},
	{says("x509: "), diag.RedisCertificate, unverified, ""},
	{says("tls: certificate required", "tls: bad certificate", "tls: unknown certificate"), diag.RedisCertificate,
		"wants a client certificate that it trusts", "set TLSConfig.Certificates, " + seeOptions + ", or tls-auth-clients no on the server"},

	{is(redis.ErrPoolTimeout), diag.RedisUnreachable, "has no free connection", "raise pool_size, or look for slow commands; all connections of the pool were in use"},
	{isA[tls.RecordHeaderError], diag.RedisUnreachable, silent, "the server may not speak TLS; " + otherScheme},
	{IsTimeout, diag.RedisUnreachable, silent, "check host, port and firewall; " + otherScheme + "; a distant Redis needs a longer Timeout, and TLS needs Protocol: 2 in the options of the client"},
	{says("refused"), diag.RedisUnreachable, silent, "check that Redis runs there, and host and port"},
	{says("no such host"), diag.RedisUnreachable, silent, "check the host name"},
	{says("EOF", "reset", "broken pipe"), diag.RedisUnreachable, silent, otherScheme + "; or the server wants a password or a client certificate, has reached maxclients, or is a proxy such as twemproxy, " +
		"which closes connections on HELLO, with which go-redis begins: connect to the servers behind it, to several by a redis.Ring"},
	{says("no such file"), diag.RedisUnreachable, silent, "check that Redis has unixsocket set to this path"},
	{func(error) bool { return true }, diag.RedisUnreachable, silent, ""},
}

const (
	silent      = "does not answer"
	unverified  = "has a certificate that does not verify"
	otherScheme = "if the server speaks TLS, try rediss:// in place of redis://; if not, try redis:// in place of rediss://"
	seeOptions  = "see redisstore.ClientOptions"
)

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

// IsTimeout reports whether an error comes from a deadline, of a context or of a connection.
func IsTimeout(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && network.Timeout()
}

// NoAnswer is the error of a call whose time is up.
func NoAnswer(within time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", within, context.DeadlineExceeded)
}

// cause returns the text of an error for a log, without the arguments that a server repeats of an
// unknown command: they may be a password or keys.
func cause(err error) string {
	text := err.Error()
	var op *net.OpError
	var call *os.SyscallError

	// The innermost error says what happened. Those around it name addresses, which the line has already.
	switch {
	case errors.As(err, &call):
		text = call.Err.Error()
	case errors.As(err, &op) && op.Err != nil:
		text = op.Err.Error()
	}

	text = WithoutArgs(text)
	// A server may answer with several lines, and a proxy with a page.
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' }); i >= 0 {
		text = text[:i]
	}

	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	return strings.TrimRight(text, ". ")
}

// WithoutArgs removes the arguments from the error about an unknown command. For AUTH they are the
// password.
func WithoutArgs(text string) string {
	if i := strings.Index(text, "unknown command"); i >= 0 {
		if j := strings.Index(text[i:], "args"); j >= 0 {
			return strings.TrimRight(text[:i+j], ", with")
		}
	}
	return text
}

// ServerError is a [Problem] in one sentence.
type ServerError struct {
	Server string // its address
	Problem
	Err error
}

func (e *ServerError) Error() string { return "redis at " + e.Server + " " + e.Problem.String() }

func (e *ServerError) Unwrap() error { return e.Err }
