package redisstore_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// While a server does not answer, the breaker is open: a few calls wait for the
// Timeout, and the others fail without a call. Probes find the recovery. The log has
// one line for the outage and one for its end.
func TestBreaker(t *testing.T) {
	for _, tt := range []struct {
		name string
		fail func(*redistest.Proxy)
	}{
		{"no reply", (*redistest.Proxy).Blackhole},
		{"connection refused", (*redistest.Proxy).Refuse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
			r, log := defaultClientStore(t, proxy.Addr, 100*time.Millisecond)
			if !answers(r) {
				t.Fatal("got no answer before the outage")
			}
			tt.fail(proxy)
			breakerOpens(t, r)
			sent := proxy.RequestBytes()

			for range 10_000 {
				if answers(r) {
					t.Fatal("got an answer during the outage")
				}
			}

			if n := proxy.RequestBytes() - sent; n > 20_000 {
				t.Errorf("10,000 calls while the breaker is open sent %d bytes; want probes only", n)
			}
			proxy.Pass()
			redistest.Eventually(t, patience, "the store to recover", func() bool { return answers(r) })
			redistest.Eventually(t, patience, "two lines", func() bool { return len(log.Lines("")) == 2 })
			lines := log.Lines("")
			if !strings.Contains(lines[0], "does not answer") || !strings.Contains(lines[1], "available again") {
				t.Errorf("got log\n%s\nwant a line for the outage and one for its end", strings.Join(lines, "\n"))
			}
		})
	}
}

// Canceled calls and invalid charges do not open the breaker.
func TestBreakerIgnoresCallers(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := defaultClientStore(t, proxy.Addr, patience)
	if !answers(r) {
		t.Fatal("got no answer to begin with")
	}
	proxy.Delay(20 * time.Millisecond)

	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := gcra.Take(ctx, r, plenty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want DeadlineExceeded", err)
		}
		cancel()
		bad := plenty
		bad.Cost = -1
		if _, err := gcra.Take(t.Context(), r, bad); err == nil {
			t.Error("got no error for a negative cost")
		}
	}

	if !answers(r) {
		t.Error("got no answer after canceled calls")
	}
	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("got log %q; want none", lines)
	}
}

// A server whose answers are errors opens the breaker too, and the log has the error.
func TestBreakerServerErrors(t *testing.T) {
	t.Parallel()
	noCommand := func(name string) []string { return []string{"--rename-command", name, ""} }
	for _, tt := range []struct {
		reason string   // in the log, a regular expression
		args   []string // of the server
		fail   string   // a command
	}{
		{"OOM command not allowed", nil, "config set maxmemory 1"},
		{"NOREPLICAS", nil, "config set min-replicas-to-write 1"},
		{"READONLY", nil, "replicaof 127.0.0.1 1"},
		{"NOPERM", nil, "acl setuser default -evalsha"},
		{"can't run this command|ACL failure in script", nil, "acl setuser default -set"}, // before Redis 7.2|since
		{"unknown command .evalsha", noCommand("EVALSHA"), ""},
		{"unknown command .eval", noCommand("EVAL"), ""},
		{"Unknown (Redis )?command called from", noCommand("MGET"), ""},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tt.args...)
			log := new(diagtest.Text)

			r := openStore(t, server.URL(), config{Timeout: patience, Logger: log.Logger()})
			if tt.fail != "" {
				if !answers(r) {
					t.Fatal("got no answer before")
				}
				do(t, server, tt.fail)
			}

			for i := 0; ; i++ {
				_, err := gcra.Take(t.Context(), r, plenty)
				if errors.Is(err, redisstore.ErrUnavailable) {
					break
				}
				if err == nil || i == 10 {
					t.Fatalf("call %d: got %v; want errors, and an open breaker after three of them", i, err)
				}
			}

			if n := r.Stats().FailedBatches; n != 3 {
				t.Errorf("Stats.FailedBatches is %d; want 3", n)
			}
			redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
			if lines := log.Lines(""); len(lines) != 1 || !regexp.MustCompile(tt.reason).MatchString(lines[0]) {
				t.Errorf("got log\n%s\nwant a line with %q", strings.Join(lines, "\n"), tt.reason)
			}
		})
	}
}

// A proxy that answers for a server that is gone opens the breaker too, whatever its error. An
// error that the script raises does not, since one key or value may be its cause.
func TestBreakerUnknownErrors(t *testing.T) {
	for text, opens := range map[string]bool{
		"ERR upstream connection failure":                true,
		"no upstream host":                               true,
		"ERR odd script: 5f0a, on @user_script:57":       false,
		"ERR Error running script: @user_script:57: odd": false,
		"WRONGTYPE odd":                                  false,
	} {
		t.Run(text, func(t *testing.T) {
			log := new(diagtest.Text)
			r := openStore(t, "redis://"+answering(t, "-"+text+"\r\n", "eval", "evalsha"), config{Timeout: patience, Logger: log.Logger()})
			for i := range 10 {
				_, err := gcra.Take(t.Context(), r, plenty)
				if open := errors.Is(err, redisstore.ErrUnavailable); err == nil || open != (opens && i >= 3) {
					t.Fatalf("call %d: got %v; want an error, of an open breaker from the fourth call on: %v", i, err, opens)
				}
			}

			s := r.Stats()
			if opens && (s.FailedBatches != 3 || !strings.Contains(s.Servers[0].Reason, text)) {
				t.Errorf("got %+v; want 3 failed batches and %q", s, text)
			}
			redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
			if lines := log.Lines(""); len(lines) != 1 || !strings.Contains(lines[0], text) || !strings.Contains(lines[0], "code=redis-refuses") {
				t.Errorf("got log\n%s\nwant a line with %q", strings.Join(lines, "\n"), text)
			}
		})
	}
}
