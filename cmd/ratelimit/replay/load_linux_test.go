package replay

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Memory does not grow with the log. RATELIMIT_REPLAY_LINES=5000000 tests the full promise:
// five million lines of 200,000 clients in 200 MB.
func TestMemory(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the race detector takes memory of its own")
	}

	lines, most := 300_000, 64
	if text := os.Getenv("RATELIMIT_REPLAY_LINES"); text != "" {
		var err error
		if lines, err = strconv.Atoi(text); err != nil || lines < 1000 {
			t.Fatalf("RATELIMIT_REPLAY_LINES is %q; want a number from 1000", text)
		}
		most = 200
	}

	cmd := exec.CommandContext(t.Context(), os.Args[0], "--policies", write(t, lasting)[0], "-")
	cmd.Env = append(os.Environ(), "REPLAY_TEST_MAIN=1")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	stdin, log := io.Pipe()
	cmd.Stdin = stdin
	defer stdin.Close() // ends the writer, should the program have ended before
	go func() { log.CloseWithError(writeLoad(log, lines, max(lines/25, 12_000))) }()

	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	took := time.Since(start)

	if want := plural(int64(lines), "request") + " in "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got\n%s\nwant %s", &out, want)
	}

	used := int64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024 //nolint:unconvert // an int32 on some machines
	t.Logf("%d lines in %v, %.0f a second, %d MB", lines, took.Round(time.Millisecond), float64(lines)/took.Seconds(), used)
	if used > int64(most) {
		t.Errorf("got %d MB resident for %d lines; want at most %d", used, lines, most)
	}
}

// lasting keeps all subjects in debt for the whole day.
const lasting = `
policies:
  - {name: client, key: client, limit: 60/minute burst 20}
  - {name: daily, key: client, limit: 30/day}
  - {name: user, key: [user, client], limit: 40/day, shadow: true}
  - {name: login, key: client, routes: ["POST /login"], limit: 5/minute}
`
