package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"
)

// The contestants that targets name.
const (
	ours         = "ratelimit"
	redisRate    = "redis_rate"
	redisRateAP  = "redis_rate+AutoPipeline"
	twoCalls     = "two_calls_of_redis_rate" // as it has no quotas: a second rate stands for one
	slidingLog   = "slidinglog"
	rueidisSet   = "rueidis_SET"
	rueidisGCRA  = "rueidis_script"
	floorScript  = "script_of_TIME_GET_SET"
	clockAndLock = "clock_and_lock"
	echoOwn      = "echo's_own"
	bare         = "bare_handler"
	bareMux      = "bare_ServeMux"
	fieldsOnly   = "four_fields_only"
	least        = "least"      // a bucket and four fields
	leastCopied  = "least+copy" // and a copy of the request, for a limiter that tells handlers something
	oursMux      = "ratelimit_ServeMux"
)

// target is a number that the project wants to reach.
type target struct {
	name    string
	bound   bound
	suffix  string // of both figures: a unit
	measure func(*figures) (ours, theirs figure)
}

// bound is what the ratio of the two figures, or ours where there is no other, is at least
// or at most.
type bound struct {
	sign  string
	value float64
}

func atMost(v float64) bound  { return bound{"<=", v} }
func atLeast(v float64) bound { return bound{">=", v} }

func (b bound) verdict(v float64) string {
	if b.sign == "<=" && v <= b.value || b.sign == ">=" && v >= b.value {
		return "met"
	}
	return "short"
}

var targets = []target{
	{"Redis, 1 caller: time of a check, to a script of TIME, GET and SET", atMost(1.25), "s", to("Redis/limiter=%s/callers=1", floorScript, "sec/op")},
	{"Redis, 16 callers: checks/s, to redis_rate", atLeast(1.8), "/s", speed("Redis/limiter=%s/callers=16", redisRate)},
	{"Redis, 256 callers: checks/s, to redis_rate", atLeast(5), "/s", speed("Redis/limiter=%s/callers=256", redisRate)},
	{"Redis, 256 callers: checks/s, to redis_rate on AutoPipeline", atLeast(3), "/s", speed("Redis/limiter=%s/callers=256", redisRateAP)},
	{"Redis, 256 callers: checks/s, to rueidis' plain SET", atLeast(1), "/s", speed("Redis/limiter=%s/callers=256", rueidisSet)},
	{"Redis, 256 callers: CPU of Redis for a check, to redis_rate", atMost(0.2), "s", to("Redis/limiter=%s/callers=256", redisRate, "redis-sec/op")},
	{"Redis over TLS, 16 callers: checks/s, to redis_rate", atLeast(1.8), "/s", speed("TLS/limiter=%s/callers=16", redisRate)},
	{"Redis over TLS, 256 callers: checks/s, to redis_rate", atLeast(5), "/s", speed("TLS/limiter=%s/callers=256", redisRate)},
	{"Cluster of six, 256 callers: CPU of all nodes for a check, to redis_rate", atMost(0.3), "s", to("Cluster/limiter=%s/callers=256", redisRate, "redis-sec/op")},
	{"Ring of three, 256 callers: CPU of all servers for a check, to one Redis", atMost(1.15), "s", func(f *figures) (figure, figure) {
		one := f.get("Ring/limiter=ratelimit/servers=1/callers=256", "redis-sec/op")
		one.of = "one Redis"
		return f.get("Ring/limiter=ratelimit/servers=3/callers=256", "redis-sec/op"), one
	}},
	{"Open, 1 caller in turn with a script of TIME, GET and SET: time of a check, to the script", atMost(1.25), "x", alone("Lone/limiter=Open", "x-script")},
	{"New on a client with ContextTimeoutEnabled and PoolTimeout, 1 caller in turn with the script: likewise", atMost(1.25), "x", alone("Lone/limiter=New", "x-script")},
	{"slidinglog on such a client, 1 caller in turn with the script: likewise", atMost(1.6), "x", alone("Lone/limiter=slidinglog", "x-script")},
	// 1.5 µs on a machine where redis_rate takes 17.
	{"Hot key, four processes of 64 callers: CPU of Redis for a check, to redis_rate", atMost(0.09), "s", to("HotKeyOfFour/limiter=%s/callers=256", redisRate, "redis-sec/op")},
	{"Redis, 256 callers: allocations of a check", atMost(3), "", alone("Redis/limiter=ratelimit/callers=256", "allocs/op")},
	{"Denied from the cache: nanoseconds", atMost(150), "", func(f *figures) (figure, figure) {
		v := f.get("Denied/limiter=ratelimit", "sec/op")
		v.value *= 1e9
		return v, figure{}
	}},
	{"Denied from the cache: allocations", atMost(0), "", alone("Denied/limiter=ratelimit", "allocs/op")},
	{"Denied from the cache: commands that Redis saw", atMost(0), "", alone("Denied/limiter=ratelimit", "commands/op")},
	{"Redis: memory of a key, to redis_rate", atMost(0.7), "B", to("KeyMemory/limiter=%s/checks=1", redisRate, "B/key")},
	{"Memory, hot key, 1 core: time, to the fastest peer", atMost(1), "s", toFastest("Memory/limiter=%s/keys=1/cores=one", "caller-sec/op")},
	{"Memory, hot key, all cores: time, to the fastest peer", atMost(1), "s", toFastest("Memory/limiter=%s/keys=1/cores=all", "sec/op")},
	{"Memory, 100,000 keys, 1 core: time, to the fastest peer", atMost(1), "s", toFastest("Memory/limiter=%s/keys=100000/cores=one", "caller-sec/op")},
	{"Memory, 100,000 keys, all cores: time, to the fastest peer", atMost(1), "s", toFastest("Memory/limiter=%s/keys=100000/cores=all", "sec/op")},
	{"Memory, 1,000 keys with full buckets, 1 core: time, to the fastest peer", atMost(1.3), "s", toFastest("Memory/limiter=%s/full=1000/cores=one", "caller-sec/op")},
	{"Memory, 1,000 keys with full buckets, all cores: time, to the fastest peer", atMost(1.3), "s", toFastest("Memory/limiter=%s/full=1000/cores=all", "sec/op")},
	{"Memory, 100,000 keys with full buckets, 1 core: time, to the fastest peer", atMost(1.3), "s", toFastest("Memory/limiter=%s/full=100000/cores=one", "caller-sec/op")},
	{"Memory, 100,000 keys with full buckets, all cores: time, to the fastest peer", atMost(1.3), "s", toFastest("Memory/limiter=%s/full=100000/cores=all", "sec/op")},
	{"Memory: allocations of a check", atMost(0), "", alone("Memory/limiter=ratelimit/keys=100000/cores=one", "allocs/op")},
	{"nethttp middleware: time added, to the fastest peer with headers", atMost(0.9), "s", added("nethttp")},
	{"gin middleware: time added, to the fastest peer with headers", atMost(0.9), "s", added("gin")},
	{"echo middleware: time added, to the fastest peer with headers", atMost(0.9), "s", added("echo")},
	{"echo_v5 middleware: time added, to the fastest peer with headers", atMost(0.9), "s", added("echo_v5")},
	{"Wait, 8 processes of 20 callers, one call a second: least gap that a partner sees", atLeast(0.999), "s", alone("Wait/limiter=ratelimit", "least-gap-sec")},
	{"In flight, 16 callers: CPU of Redis for acquire and release, to one check of redis_rate", atMost(2.6), "s", to("InFlight/limiter=%s/callers=16", redisRate, "redis-sec/op")},
	{"Redis, 256 callers, a rate and a quota in one admission: checks/s, to two calls of redis_rate", atLeast(5), "/s", speed("RateAndQuota/limiter=%s/callers=256", twoCalls)},
}

func init() {
	if runtime.GOOS != "linux" {
		return // the proxy needs it
	}
	for _, away := range []string{"1ms", "5ms"} {
		for _, rate := range []int{2_000, 10_000} {
			for i, unit := range []string{"p50-rtt", "p90-rtt"} {
				name := fmt.Sprintf("%s away, %d checks/s: %s, to a script by rueidis", away, rate, unit)
				pattern := fmt.Sprintf("Distance/rtt=%s/rate=%d/limiter=%%s", away, rate)
				targets = append(targets, target{name, atMost([]float64{1.10, 1.25}[i]), "x", to(pattern, rueidisGCRA, unit)})
			}
		}
	}
}

// to compares ours with a peer in benchmarks of one pattern.
func to(pattern, peer, unit string) func(*figures) (figure, figure) {
	return func(f *figures) (figure, figure) {
		theirs := f.get(fmt.Sprintf(pattern, peer), unit)
		theirs.of = peer
		return f.get(fmt.Sprintf(pattern, ours), unit), theirs
	}
}

// speed is [to] of checks a second.
func speed(pattern, peer string) func(*figures) (figure, figure) {
	return func(f *figures) (figure, figure) {
		a, b := to(pattern, peer, "sec/op")(f)
		a.value, b.value = 1/a.value, 1/b.value
		return a, b
	}
}

// alone is a target without a peer.
func alone(benchmark, unit string) func(*figures) (figure, figure) {
	return func(f *figures) (figure, figure) { return f.get(benchmark, unit), figure{} }
}

// toFastest compares ours with the fastest peer of the pattern.
func toFastest(pattern, unit string) func(*figures) (figure, figure) {
	return func(f *figures) (figure, figure) { return to(pattern, f.fastest(pattern, unit), unit)(f) }
}

// added is what ours and the fastest peer with headers add to a bare handler.
func added(framework string) func(*figures) (figure, figure) {
	pattern := "Middleware/framework=" + framework + "/limiter=%s"
	return func(f *figures) (figure, figure) {
		const unit = "caller-sec/op"
		a, b := to(pattern, f.fastest(pattern, unit), unit)(f)
		without := f.get(fmt.Sprintf(pattern, bare), unit).value
		return figure{value: a.value - without}, figure{value: b.value - without, of: b.of}
	}
}

// notPeers are ours and what does less than a limiter that writes headers.
var notPeers = []string{ours, oursMux, clockAndLock, bare, bareMux, fieldsOnly, least, leastCopied}

// figure is a median over the rounds.
type figure struct {
	value  float64
	spread string // benchstat's confidence interval, as "3%"
	of     string // a peer
}

func (v figure) text(suffix string) string {
	text := fmt.Sprintf("%.4g%s", v.value, suffix)
	if suffix != "" && suffix != "x" {
		text = benchunit.Scale(v.value, benchunit.Decimal) + suffix
	}
	if v.spread != "" && v.spread != "∞" {
		text += " ± " + v.spread
	}
	return strings.TrimSpace(text + " " + v.of)
}

// figures are what all benchmarks have measured.
type figures struct {
	all     map[[2]string]figure // by benchmark and unit
	missing []string
}

// cores is what Go adds to the name of a benchmark.
var cores = regexp.MustCompile(`-\d+$`)

// readFigures reads the samples with benchstat.
func readFigures(samples string) (*figures, error) {
	out, err := exec.Command("go", "tool", "benchstat", "-format", "csv", "-row", ".fullname", samples).Output()
	if err != nil {
		return nil, fmt.Errorf("benchstat: %w", err)
	}

	lines := csv.NewReader(bytes.NewReader(out))
	lines.FieldsPerRecord = -1
	records, err := lines.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("benchstat: %w", err)
	}

	// A table begins with its unit: ",sec/op,CI".
	f, unit := &figures{all: map[[2]string]figure{}}, ""
	for _, r := range records {
		if len(r) < 3 {
			continue
		}
		if r[0] == "" {
			unit = r[1]
		} else if value, err := strconv.ParseFloat(r[1], 64); err == nil {
			f.all[[2]string{cores.ReplaceAllString(r[0], ""), unit}] = figure{value: value, spread: r[2]}
		}
	}
	return f, nil
}

func (f *figures) get(benchmark, unit string) figure {
	v, ok := f.all[[2]string{benchmark, unit}]
	if !ok {
		f.missing = append(f.missing, benchmark+" "+unit)
	}
	return v
}

// fastest is the fastest peer in benchmarks of one pattern.
func (f *figures) fastest(pattern, unit string) (peer string) {
	names := regexp.MustCompile("^" + strings.Replace(regexp.QuoteMeta(pattern), "%s", "([^/]+)", 1) + "$")
	best := 0.0

	for key, v := range f.all {
		name := names.FindStringSubmatch(key[0])
		if key[1] != unit || name == nil || slices.Contains(notPeers, name[1]) {
			continue
		}

		// Echo v4's own middleware writes no headers.
		if strings.HasPrefix(pattern, "Middleware") && name[1] == echoOwn {
			continue
		}
		if peer == "" || v.value < best {
			peer, best = name[1], v.value
		}
	}
	return peer
}

// table is what the targets come to, in Markdown.
func (f *figures) table() (string, error) {
	var out strings.Builder
	out.WriteString("| row | ours | theirs | ratio | target | |\n|---|--:|--:|--:|--:|---|\n")
	for _, t := range targets {
		a, b := t.measure(f)
		judged, theirs, ratio := a.value, "-", "-"
		if b.of != "" {
			judged = a.value / b.value
			theirs, ratio = b.text(t.suffix), fmt.Sprintf("%.2f", judged)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s %g | %s |\n",
			t.name, a.text(t.suffix), theirs, ratio, t.bound.sign, t.bound.value, t.bound.verdict(judged))
	}

	if f.missing != nil {
		return "", fmt.Errorf("no figures of %q", f.missing)
	}
	return out.String(), nil
}
