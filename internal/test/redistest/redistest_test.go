package redistest

import (
	"fmt"
	"testing"
)

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
