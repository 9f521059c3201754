package main

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
)

func TestExample(t *testing.T) { smoke.Test(t, newHandler) }
