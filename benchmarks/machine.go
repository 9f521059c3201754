package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// load is the number of processes that wanted a core over the last minute, or 0
// where that is not known.
func load() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64) // 0 when it is not known
	return v
}

// isBusy reports whether others use the machine so much that figures suffer.
func isBusy(load float64) bool { return load > 0.25*float64(runtime.NumCPU()) }

// machine describes what this runs on, without its name. load is that before
// the run.
func machine(load float64) []string {
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
	used := fmt.Sprintf("load average before the run: %.2f", load)
	if isBusy(load) {
		used += "; **others were using the machine, so do not quote these figures**"
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
