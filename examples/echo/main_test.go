package main

import (
	"net/http"
	"testing"

	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
	"github.com/seed-e377111c/ratelimit/gcra"
)

func TestExample(t *testing.T) {
	smoke.Test(t, func(store gcra.Store) http.Handler { return newRouter(store) })
}
