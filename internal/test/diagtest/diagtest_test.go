package diagtest_test

import (
	"log/slog"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

type tests func() int

func (run tests) Run() int { return run() }

func TestQuiet(t *testing.T) {
	report := func(code diag.Code) func() int {
		return func() int { new(diag.Log).Report(code, "", "of TestQuiet"); slog.Info("no problem"); return 0 }
	}
	own := func() int {
		(&diag.Log{Logger: new(diagtest.Log).Logger()}).Report(diag.PolicyFailed, "", "unseen")
		return 0
	}

	for _, test := range []struct {
		name   string
		run    func() int
		except []diag.Code
		want   int
	}{
		{"a problem", report(diag.PolicyFailed), nil, 1},
		{"an exception", report(diag.PolicyFailed), []diag.Code{diag.PolicyFailed}, 0},
		{"a hint", report(diag.RedisSettings), nil, 0},
		{"a slow machine", report(diag.RedisUnreachable), nil, 0},
		{"a Logger of its own", own, nil, 0},
		{"tests that fail", func() int { return 2 }, nil, 2},
	} {
		if got := diagtest.Quiet(tests(test.run), test.except...).Run(); got != test.want {
			t.Errorf("%s: got %d; want %d", test.name, got, test.want)
		}
	}
}
