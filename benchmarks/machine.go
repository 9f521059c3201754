package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// others is how many cores other programs keep busy. It looks for two seconds, in which
// this program does nothing. It is 0 where the system does not say.
func others(ctx context.Context) float64 {
	busy, all := cpuTicks()
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	busyLater, allLater := cpuTicks()
	return float64(runtime.NumCPU()) * (busyLater - busy) / max(allLater-all, 1)
}

// cpuTicks are the ticks of all cores since the start, from the first line of
// /proc/stat: "cpu user nice system idle iowait irq softirq steal guest guest_nice".
func cpuTicks() (busy, all float64) {
	text, _ := os.ReadFile("/proc/stat") // none: both are 0
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		if i == 0 || i > 8 { // user has the time of guests
			continue
		}
		ticks, _ := strconv.ParseFloat(f, 64)
		all += ticks
		if i != 4 && i != 5 {
			busy += ticks
		}
	}
	return busy, all
}

// isBusy reports whether others use the machine so much that figures suffer.
func isBusy(cores float64) bool { return cores > 0.1*float64(runtime.NumCPU()) }

// machine describes what this runs on, without its name. others is how many cores other
// programs used before the run.
func machine(others float64) []string {
	model := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel := runtime.GOOS
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel += " " + strings.TrimSpace(string(release))
	}
	used := fmt.Sprintf("other programs used %.2f cores before the run", others)
	if isBusy(others) {
		used += "; **that is too much to quote these figures**"
	}
	return []string{
		fmt.Sprintf("%d cores (%s), shared by the clients and Redis", runtime.NumCPU(), model),
		kernel + ", " + runtime.GOARCH,
		used,
	}
}

// peers are the modules whose versions matter.
var peers = []string{
	"github.com/didip/tollbooth/v8",
	"github.com/gin-gonic/gin",
	"github.com/go-chi/httprate",
	"github.com/go-redis/redis_rate/v10",
	"github.com/labstack/echo/v4",
	"github.com/labstack/echo/v5",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis",
	"github.com/sethvargo/go-limiter",
	"github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3",
	"golang.org/x/time",
}

// versions are those of Go, the server and the peers, as they were built in.
func versions(server string) []string {
	out := []string{"Go " + strings.TrimPrefix(runtime.Version(), "go"), server}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return out
	}
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			out = append(out, m.Path+" "+m.Version)
		}
	}
	return out
}
