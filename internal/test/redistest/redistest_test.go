package redistest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Both kinds of Redis that Any chooses from behave the same.
func TestAnyAndEmbedded(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *redis.Client{"Any": Any, "StartEmbedded": StartEmbedded} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			if n, err := c.DBSize(t.Context()).Result(); err != nil || n != 0 {
				t.Errorf("DBSIZE: got %d, %v; want 0", n, err)
			}
			got, err := c.Eval(t.Context(), "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])", []string{"k"}, "v").Result()
			if err != nil || got != "v" {
				t.Errorf("EVAL: got %v, %v; want v", got, err)
			}
		})
	}
}

// A condition that never holds is asked at least once, and not for much longer
// than the time given.
func TestPoll(t *testing.T) {
	asked := 0
	start := time.Now()
	err := poll(20*time.Millisecond, func() error { asked++; return errPortTaken })
	if err != errPortTaken || asked == 0 {
		t.Errorf("got %v after asking %d times; want the last error of f", err, asked)
	}
	if d := time.Since(start); d < 20*time.Millisecond {
		t.Errorf("gave up after %v; want at least 20ms", d)
	}
}

// verdict records how a test was ended, where a real one would end.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()                        {}
func (v *verdict) Skipf(format string, a ...any)  { v.skipped = fmt.Sprintf(format, a...) }
func (v *verdict) Fatalf(format string, a ...any) { v.failed = fmt.Sprintf(format, a...) }

// A missing server skips a test, or fails it if one is required, with the reason.
func TestNeedServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(programVar, "")
	if available() {
		t.Error("available: got true with nothing on the PATH")
	}
	const missing = `redis-server: exec: "redis-server": executable file not found in $PATH`
	for env, want := range map[string]verdict{
		"":         {skipped: missing + "; set RATELIMIT_TEST_REDIS=required to make this a failure"},
		"required": {failed: missing + ", and RATELIMIT_TEST_REDIS=required"},
	} {
		t.Setenv(envVar, env)
		var got verdict
		Need(&got)
		if got != want {
			t.Errorf("with %s=%q: got %+v; want %+v", envVar, env, got, want)
		}
	}

	t.Setenv(envVar, "")
	if err := Any(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("Any without a server: PING: got %v", err)
	}
}
