package main

import (
	"net/http"
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diagtest"
)

func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }

func TestExample(t *testing.T) {
	smoke.Test(t, func(store gcra.Store) http.Handler { return newRouter(store) })
}
