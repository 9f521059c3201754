package sitetest_test

import (
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
)

func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }
