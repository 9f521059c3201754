package rediskit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// replies is a server that answers each command with the next of some errors, "" for none, and
// records the commands.
type replies struct {
	errs []string
	sent []string
}

type scriptError string

func (a scriptError) Error() string { return string(a) }
func (scriptError) RedisError()     {}

func (a *replies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *replies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *replies) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		a.sent = append(a.sent, fmt.Sprint(cmd.Args()))
		if len(a.errs) == 0 {
			return errors.New("sent too often")
		}
		text := a.errs[0]
		if a.errs = a.errs[1:]; text == "" {
			return nil
		}
		cmd.SetErr(scriptError(text))
		return scriptError(text)
	}
}

// A script is sent again only if it has not run: once with its text, and while its keys are on two nodes.
func TestSendAgain(t *testing.T) {
	const noScript, tryAgain, lost = "NOSCRIPT No matching script.", "TRYAGAIN Multiple keys request", "READONLY x"
	const sha, text = "[evalsha sha 1 k arg]", "[eval text 1 k arg]"
	for _, tt := range []struct {
		errs []string // the replies
		sent []string
		last string // the error of the last command
	}{
		{[]string{""}, []string{sha}, ""},
		{[]string{lost}, []string{sha}, lost},
		{[]string{noScript, ""}, []string{sha, text}, ""},
		{[]string{noScript, noScript}, []string{sha, text}, noScript},
		{[]string{tryAgain, ""}, []string{sha, sha}, ""},
		{[]string{tryAgain, tryAgain, tryAgain, ""}, []string{sha, sha, sha, sha}, ""},
		{[]string{tryAgain, tryAgain, lost}, []string{sha, sha, sha}, lost},
		{[]string{tryAgain, noScript, ""}, []string{sha, sha, text}, ""}, // the new owner does not have the script
		{[]string{noScript, tryAgain, ""}, []string{sha, text, text}, ""},
	} {
		server := &replies{errs: tt.errs}
		client := redis.NewClient(&redis.Options{})
		t.Cleanup(func() { client.Close() })
		client.AddHook(server)
		args := []any{"evalsha", "sha", 1, "k", "arg"}
		cmd := SendAgain(t.Context(), client, Send(t.Context(), client, args), "text")
		got := ""
		if cmd.Err() != nil {
			got = cmd.Err().Error()
		}

		if !slices.Equal(server.sent, tt.sent) || got != tt.last {
			t.Errorf("replies %q: sent %q, last error %q; want %q and %q", tt.errs, server.sent, got, tt.sent, tt.last)
		}
	}
}

// Once the deadline has passed, TRYAGAIN is returned.
func TestSendAgainInTime(t *testing.T) {
	server := &replies{errs: []string{"TRYAGAIN x"}}
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { client.Close() })
	client.AddHook(server)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if cmd := SendAgain(ctx, client, Send(ctx, client, []any{"evalsha", "sha", 0}), "text"); !redis.IsTryAgainError(cmd.Err()) || len(server.sent) != 1 {
		t.Errorf("got %v after sending %q; want TRYAGAIN, sent once", cmd.Err(), server.sent)
	}
}

// limiter is a redis.Limiter, which may take as long as it likes.
type limiter struct{ redis.Limiter }

// Both settings are needed.
func TestBoundsCalls(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		bounds bool
	}{
		{"both settings", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout}), true},
		{"both settings and no deadlines", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout, ReadTimeout: -2}), false},
		{"both settings and OnConnect", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout,
			OnConnect: func(context.Context, *redis.Conn) error { return nil }}), false},
		{"both settings and a Limiter", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout, Limiter: limiter{}}), false},
		{"none", redis.NewClient(&redis.Options{}), false},
		{"no PoolTimeout", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}), false},
		{"no ContextTimeoutEnabled", redis.NewClient(&redis.Options{PoolTimeout: timeout}), false},
		{"a longer PoolTimeout", redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, PoolTimeout: timeout + 1}), false},
		{"a cluster", redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, PoolTimeout: timeout}), false},
		{"a ring", redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, PoolTimeout: timeout}), false},
		{"no client", nil, false},
	} {
		if got := BoundsCalls(tt.client, timeout); got != tt.bounds {
			t.Errorf("%s: BoundsCalls is %v; want %v", tt.name, got, tt.bounds)
		}
		if tt.client != nil {
			_ = tt.client.Close()
		}
	}
}
