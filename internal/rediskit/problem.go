package rediskit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Conn describes the connection of an error.
type Conn struct {
	TLS      bool // the client speaks TLS
	RESP3    bool // the client asks for RESP3, as it does by default
	Cluster  bool // the client knows that the server is a node of a cluster
	Answered bool // the server has replied to the script before
}

// Problem explains an error of a server in plain words.
type Problem struct {
	Code  diag.Code // "" if the error says nothing about the server
	What  string    // follows the word redis: "refuses the password or the user"
	Cause string    // the error on one line, without the arguments of a command
	Hint  string    // what to change or to look at, or ""

	// Timeout means that there was no reply in time. On a slow network or a busy machine that
	// happens with a healthy server.
	Timeout bool

	// Closed means that the server has closed the connection. See [WhyClosed].
	Closed bool
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

	p := Problem{Cause: cause(err)}
	text := p.Cause
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	set := func(code diag.Code, what, hint string) Problem {
		p.Code, p.What, p.Hint = code, what, hint
		return p
	}

	var invalid x509.CertificateInvalidError
	var answered redis.Error
	switch {
	case errors.Is(err, ErrReply):
		return set(diag.RedisProtocol, notRedis, "a proxy or a server in between may change replies; connect to Redis directly")
	case errors.Is(err, redis.Nil) && c.Cluster: // no script replies with nil
		return set(diag.RedisProtocol, "is a cluster whose nodes do not say their addresses", "set cluster-preferred-endpoint-type to ip or hostname on every node; go-redis cannot use unknown-endpoint")
	case errors.Is(err, ErrKeysApart):
		return set(diag.RedisKeysApart, "runs scripts away from their keys", "let the proxy choose the server by the hash tag of the key, or connect to Redis directly")

	// TLS.
	case is[x509.UnknownAuthorityError](err):
		return set(diag.RedisCertificate, "has a certificate that does not verify", hintCA())
	case is[x509.HostnameError](err):
		return set(diag.RedisCertificate, "has a certificate that does not verify", "connect to a name among the certificate's SANs, or issue one with this name")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return set(diag.RedisCertificate, "has a certificate that does not verify", "renew the certificate, or set this machine's clock")
	case is[*tls.CertificateVerificationError](err), has("x509: "):
		return set(diag.RedisCertificate, "has a certificate that does not verify", "")
	case has("tls: certificate required", "tls: bad certificate", "tls: unknown certificate"):
		return set(diag.RedisCertificate, "wants a client certificate that it trusts", "set TLSConfig.Certificates, see redisstore.ClientOptions, or tls-auth-clients no on the server")
	case is[tls.RecordHeaderError](err):
		return set(diag.RedisUnreachable, "does not answer", "the server may not speak TLS; try redis:// in place of rediss://")

	// The connection.
	case has("can't parse", "invalid reply"):
		return set(diag.RedisProtocol, notRedis, "check host and port: something else listens there")
	case errors.Is(err, redis.ErrPoolTimeout):
		return set(diag.RedisUnreachable, "has no free connection", "raise pool_size, or look for slow commands; all connections of the pool were in use")

	case !errors.As(err, &answered):
		hint := ""
		p.Closed = has("EOF", "reset", "broken pipe")
		switch {
		case IsTimeout(err):
			p.Timeout = true
			switch {
			case c.Answered:
			case c.TLS && c.RESP3:
				hint = "set Protocol: 2 in the options of the client: under RESP3 go-redis may wait 50 ms on a new TLS connection; or the server may not speak TLS"
			case c.TLS:
				hint = "the server may not speak TLS; try redis:// in place of rediss://"
			default:
				hint = "check host, port and firewall; a distant Redis needs a longer Timeout"
			}

		case has("refused"):
			hint = "check that Redis runs there, and host and port"
		case has("no such host"):
			hint = "check the host name"
		case !c.TLS && !c.Answered && p.Closed:
			hint = "the server may speak TLS: try rediss:// in place of redis://; or have reached maxclients; or be a proxy such as twemproxy, which closes connections on HELLO, with which go-redis begins: connect to the servers behind it, to several by a redis.Ring"
		case c.TLS && !c.Answered && p.Closed:
			hint = "the server may want a client certificate: set TLSConfig.Certificates, see redisstore.ClientOptions; or it has reached maxclients"
		case has("no such file"):
			hint = "check that Redis has unixsocket set to this path"
		}
		return set(diag.RedisUnreachable, "does not answer", hint)
	}

	a := explain(answered.Error())
	if c.Cluster && (a.prefix == "MOVED " || a.prefix == "CROSSSLOT") {
		return set(diag.RedisRefuses, refuses, "") // a slot moves
	}
	return set(a.code, a.what, a.hint)
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
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

// hintCA says how to name the authority of a certificate.
func hintCA() string {
	hint := "name the file of its CA in SSL_CERT_FILE, or set TLSConfig.RootCAs, see redisstore.ClientOptions"
	if _, err := os.Stat(os.Getenv("SSL_CERT_FILE")); os.Getenv("SSL_CERT_FILE") != "" && err != nil {
		hint = "SSL_CERT_FILE cannot be read: " + err.Error()
	}
	return hint
}

// scriptPlace matches what Redis 7 adds to the error of a command in a script.
var scriptPlace = regexp.MustCompile(`,? script: [0-9a-f]{40}, on @user_script:\d+`)

// cause returns the text of an error for a log, without the arguments that a server repeats of an
// unknown command: they may be a password or keys.
func cause(err error) string {
	text := err.Error()
	var op *net.OpError
	var call *os.SyscallError
	var dns *net.DNSError

	// The innermost error says what happened. Those around it name addresses, which the line has already.
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

	text = WithoutArgs(text)
	text = scriptPlace.ReplaceAllString(text, "")
	// A server may answer with several lines, and a proxy with a page.
	if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' }); i >= 0 {
		text = text[:i]
	}

	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "")
	}
	text = strings.TrimSuffix(text, ": "+context.DeadlineExceeded.Error())
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
