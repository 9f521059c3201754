package ratelimit_test

import (
	"strings"
	"testing"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
)

func TestNewPanics(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "Store is nil") {
			t.Errorf("got %v; want a panic that names the mistake", err)
		}
	}()
	ratelimit.New(ratelimit.Config{})
}
