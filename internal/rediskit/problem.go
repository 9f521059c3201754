package rediskit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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
