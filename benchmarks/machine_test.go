package main

import (
	"context"
	"runtime"
	"testing"
)

func TestOthers(t *testing.T) {
	if busy, all := cpuTicks(); runtime.GOOS == "linux" && (busy <= 0 || all <= busy) {
		t.Errorf("got %v of %v ticks; want some that were idle", busy, all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := others(ctx); got < 0 || got > float64(runtime.NumCPU()) {
		t.Errorf("others use %v cores; want 0 to %d", got, runtime.NumCPU())
	}
	if isBusy(0) || !isBusy(float64(runtime.NumCPU())) {
		t.Error("an idle machine is busy, or a busy one is idle")
	}
}
