package ratelimit_test

import (
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

// A store that fails is tested here.
func TestMain(m *testing.M) {
	os.Exit(diagtest.Quiet(m, diag.StoreFailed).Run())
}
