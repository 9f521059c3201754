package sitetest_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }

var once = gcra.PerHour(1)

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s; want %s", what, g, w)
	}
}
