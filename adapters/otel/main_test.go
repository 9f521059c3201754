package ratelimitotel_test

import (
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

// The tests cause failures on purpose, which are logged where Decision.Err is set.
func TestMain(m *testing.M) {
	os.Exit(diagtest.Quiet(m, diag.CostAboveBurst, diag.PolicyFailed, diag.StoreFailed).Run())
}
