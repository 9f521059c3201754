package main

import (
	"fmt"
	"slices"
)

// targets are the project's, in the order of its design.
var targets = slices.Concat(onRedis, inMemory, inMiddleware())

// faster is the bound of "faster than every peer".
var faster = bound{true, 0.999, times}

var onRedis = []target{
	{"Redis, 1 caller: time of a check, to a script of TIME, GET and SET", stageCallers, 1, atMost(1.05, times),
		func(r *results) verdict { return against(r.callers[1].of(sample.nanos), floorScript, nanos) },
		func(r *results) string {
			each := r.callers[1].of(sample.nanos)
			return fmt.Sprintf("%s The shortest script that decides, on the same client and with a timeout like ours, takes %s, %s of that script.", whereTimeGoes(1, floorScript)(r),
				figure(median(each[decidingScript]), nanos), figure(ratio(each[decidingScript], each[floorScript]), times))
		}},
	speed(16, redisRate, 1.8),
	speed(manyCallers, redisRate, 5),
	speed(manyCallers, redisRateAP, 3),
	speed(manyCallers, rueidisSet, 1),
	{"Redis, 256 callers: CPU of Redis for a check, to redis_rate", stageCallers, manyCallers, atMost(0.2, times),
		func(r *results) verdict {
			return against(r.callers[manyCallers].of(sample.cpuMicros), redisRate, micros)
		},
		whereTimeGoes(manyCallers, rueidisSet)},
	{"Redis, 256 callers: CPU of the client for a check, to rueidis SET", stageCallers, manyCallers, atMost(1, times),
		func(r *results) verdict {
			return against(r.callers[manyCallers].of(sample.ownNanos), rueidisSet, nanos)
		}, nil},
	{"Redis, 256 callers: allocations of a check", stageCallers, manyCallers, atMost(3, allocs),
		func(r *results) verdict { return alone(r.callers[manyCallers].of(sample.allocs)[ours], allocs) }, nil},
	{"Cluster of six, 256 callers: CPU of all nodes for a check, to redis_rate", stageCluster, 0, atMost(0.25, times),
		func(r *results) verdict { return against(r.cluster.of(sample.cpuMicros), redisRate, micros) },
		func(r *results) string {
			cpu := r.cluster.of(sample.cpuMicros)
			return fmt.Sprintf("A check takes %.2f us of CPU on all nodes; a SET sent by AutoPipeline, which the replicas repeat too, %.2f us.",
				median(cpu[ours]), median(cpu[goRedisSetAP]))
		}},
	{"Ring of three, 256 callers: CPU of all servers for a check, to one Redis", stageRing, 0, atMost(1.15, times),
		func(r *results) verdict {
			cpu := r.ring.of(sample.cpuMicros)
			return against(series{ours: cpu[ours+onRing], "one Redis": cpu[ours]}, "one Redis", micros)
		}, func(r *results) string {
			cpu := r.ring.of(sample.cpuMicros)
			return fmt.Sprintf("Each server of the Ring has a third of the callers, and so smaller batches. With %d callers, as many for each server as the one Redis has, a check takes %.2f us on the Ring, %s of one Redis.",
				crowd*manyCallers, median(cpu[ours+onRing+crowded]), figure(ratio(cpu[ours+onRing+crowded], cpu[ours]), times))
		}},
	{"Redis, 256 callers, a rate and a quota in one check: checks a second, to " + twoCalls, stageQuota, 0, atLeast(5, times),
		func(r *results) verdict { return against(r.quota.of(sample.perSecond), twoCalls, perSecond) },
		func(r *results) string {
			redis, own := r.quota.of(sample.cpuMicros), r.quota.of(sample.ownNanos)
			return fmt.Sprintf("CPU of Redis for a check: %.2f us, %s %.2f us; of the client: %.2f us, %.2f us. With the rate alone, ours makes %s checks a second, %.2f us of Redis each.",
				median(redis[ours]), twoCalls, median(redis[twoCalls]), median(own[ours])/1e3, median(own[twoCalls])/1e3,
				thousands(int64(median(r.quota.of(sample.perSecond)[ours+rateOnly]))), median(redis[ours+rateOnly]))
		}},
	{"Denied from the cache: time", stageDenied, 0, atMost(150, nanos),
		func(r *results) verdict { return alone(r.denied.nanos, nanos) }, nil},
	{"Denied from the cache: allocations", stageDenied, 0, atMost(0, allocs),
		func(r *results) verdict { return alone([]float64{r.denied.allocs}, allocs) }, nil},
	{"Denied from the cache: commands that Redis saw", stageDenied, 0, atMost(0, commands),
		func(r *results) verdict { return alone([]float64{float64(r.denied.commands)}, commands) }, nil},
	{"Redis: memory of a key, to redis_rate", stageUsage, 0, atMost(0.7, times), func(r *results) verdict {
		return against(series{ours: {r.usage[ours]}, redisRate: {r.usage[redisRate]}}, redisRate, octets)
	}, nil},
	{"Wait, 8 processes of 20 callers, one call a second: least gap that a partner sees", stageWait, 0, atLeast(999, millis),
		func(r *results) verdict {
			v := alone(r.gaps, millis)
			v.ours = slices.Min(r.gaps)
			return v
		}, nil},
}

// speed compares checks a second.
func speed(callers int, peer string, least float64) target {
	return target{
		fmt.Sprintf("Redis, %d callers: checks a second, to %s", callers, peer), stageCallers, callers, atLeast(least, times),
		func(r *results) verdict { return against(r.callers[callers].of(sample.perSecond), peer, perSecond) },
		whereTimeGoes(callers, peer),
	}
}

// whereTimeGoes compares the CPU time of Redis and of this process.
func whereTimeGoes(callers int, peer string) func(*results) string {
	return func(r *results) string {
		redis, own := r.callers[callers].of(sample.cpuMicros), r.callers[callers].of(sample.ownNanos)
		return fmt.Sprintf("A check takes %.2f us of CPU in Redis and %.2f us in the client; %s takes %.2f us and %.2f us. Redis is busy %.0f %% of the time with ours.",
			median(redis[ours]), median(own[ours])/1e3, peer, median(redis[peer]), median(own[peer])/1e3, busy(r.callers[callers], ours))
	}
}

// busy is the share of the time, in percent, in which the servers of a contestant work.
func busy(s samples, name string) float64 {
	return 100_000 * ratio(s.of(sample.cpuMicros)[name], s.of(sample.nanos)[name]) // microseconds in nanoseconds
}

var inMemory = []target{
	fastest("Memory, hot key, 1 core", 1, oneCore),
	fastest("Memory, hot key, all cores", 1, allCores),
	fastest("Memory, 100,000 keys, 1 core", keysInMemory, oneCore),
	fastest("Memory, 100,000 keys, all cores", keysInMemory, allCores),
	{"Memory: allocations of a check", stageMemory, 0, atMost(0, allocs),
		func(r *results) verdict { return alone([]float64{r.memAll[ours].allocs}, allocs) }, nil},
}

func oneCore() int  { return 1 }
func allCores() int { return cores }

func fastest(name string, keys int, callers func() int) target {
	return target{name + ": time, to the fastest peer", stageMemory, 0, faster, func(r *results) verdict {
		s := r.memoryTimes(setting{keys, callers()})
		return against(s, s.lowest(func(name string) bool { return name != ours && !isCommand(name) }), nanos)
	}, func(r *results) string {
		return fmt.Sprintf("Reading the clock within a lock takes %.0f ns.", median(r.memoryTimes(setting{keys, callers()})[clockAndLock]))
	}}
}

// memoryTimes is the time of a check. Callers on all cores wait for each other,
// so there CPU time does not tell.
func (r *results) memoryTimes(at setting) series {
	if at.callers == 1 {
		return r.memory[at].of(sample.callerNanos)
	}
	return r.memory[at].of(sample.nanos)
}

// inMiddleware compares ours with the fastest peer that writes headers.
func inMiddleware() (all []target) {
	const most = 0.9 // of the time that the fastest peer adds
	for _, framework := range frameworkNames {
		all = append(all, target{
			framework + " middleware: time added, to the fastest peer with headers",
			stageServe, 0, atMost(most, times),
			func(r *results) verdict {
				s, _ := r.overheads(framework, sample.callerNanos)
				peer := s.lowest(tells)
				return against(series{ours: s[ours], peer: s[peer]}, peer, nanos)
			},
			func(r *results) string {
				s, all := r.overheads(framework, sample.callerNanos)
				peer := s.lowest(tells)
				whole, _ := r.overheads(framework, sample.ownNanos)
				return fmt.Sprintf("A request allocates %.0f objects of %.0f bytes in all; with %s %.0f of %.0f. With garbage collection on other threads it takes %.0f ns and %.0f ns. Four header fields without a limiter take %.0f ns. %s",
					all[ours].allocs, all[ours].bytes, peer, all[peer].allocs, all[peer].bytes, median(whole[ours]), median(whole[peer]), median(s[fieldsOnly]), leastCopies(s, peer, most))
			},
		})
	}
	return all
}
