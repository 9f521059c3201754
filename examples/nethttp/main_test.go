package main

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
)

func TestMain(m *testing.M) { smoke.Main(m, main) }

func TestStart(t *testing.T) { smoke.Start(t) }

func TestExample(t *testing.T) { smoke.Test(t, newHandler) }
