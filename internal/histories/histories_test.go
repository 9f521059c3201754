package histories

import (
	"os"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// long is the form that make long runs.
var long = os.Getenv("RATELIMIT_LONG") != ""

// amount is a size for the short form or the long.
func amount(short, full int) int {
	if long {
		return full
	}
	return short
}

// patience is how long a busy machine may take for what has to happen.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	redistest.Child(historyURL, makeHistory)
	os.Exit(m.Run())
}
