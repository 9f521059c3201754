package faults

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// TestSoak runs three servers, which count each other. Each has a store in a single Redis
// behind a proxy, one in a cluster and one behind Sentinel. Mixed traffic goes on for as
// long as RATELIMIT_SOAK says. Faults come one after the other, each in an episode of its
// own that ends with a pause.
//
// After each episode it checks the bound of each key in every window of the episode:
// SECURITY.md allows the larger of a burst and soakServers × the cost of a request
// more, and a burst if the fault makes Redis lose data. At the end it checks the windows
// of the whole run, in which many faults may cost no more than one. Answers
// must have the right header fields, decisions must keep to the Timeout, and the
// servers must hold no more memory, goroutines and files than after the warm-up. With RATELIMIT_SOAK_DISTANCE, as 2ms, the
// single Redis is so far away.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("RATELIMIT_SOAK"))
	if os.Getenv("RATELIMIT_SOAK") == "" {
		t.Skip("RATELIMIT_SOAK is not set; make soak sets it to an hour")
	}
	if err != nil || length < time.Minute || length > 24*time.Hour {
		t.Fatalf("RATELIMIT_SOAK is %q; want 1m to 24h", os.Getenv("RATELIMIT_SOAK"))
	}
	s := startSoak(t)
	end := time.Now().Add(length)
	fmt.Printf("three servers, a PING of the single Redis takes %v, one fault after the other until %s: a line about every minute, tables at the end\n",
		s.distance.Round(10*time.Microsecond), end.Format(time.TimeOnly))
	defer s.print(length)

	// The warm-up: pools and tables grow to what slow answers make of them.
	s.episode(soakFault{name: "warm-up: 20 to 80 ms late", store: "single", within: probing, inject: func(d time.Duration) string {
		s.redis.proxy.DelayBetween(20*time.Millisecond, 80*time.Millisecond)
		time.Sleep(d)
		s.redis.proxy.Pass()
		return "somebody"
	}}, 10*time.Second)

	s.measure("start")
	marks := []string{"three quarters", "half", "quarter"}
	for round := s.redis.faults(s.client); time.Now().Before(end); {
		rand.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, f := range round {
			if time.Now().After(end) {
				break
			}
			s.episode(f, 2*time.Second+rand.N(6*time.Second))
			if left := float64(time.Until(end)) / float64(length); len(marks) > 0 && left < float64(len(marks))/4 {
				s.measure(marks[len(marks)-1])
				marks = marks[:len(marks)-1]
			}
		}
	}

	s.measure("end")
	s.checkAll()
	var all tally
	for _, r := range s.rows {
		all.add(r.tally)
	}
	if all.late > all.requests/20 {
		t.Errorf("%d of %d decisions took longer than %v", all.late, all.requests, late)
	}
}

// soak is a run.
type soak struct {
	t      *testing.T
	redis  soakRedis
	client *client
	server []*redistest.Process
	begun  time.Time
	said   time.Time // when the last line of progress was written

	distance time.Duration // of the single Redis

	rows  []*soakRow
	past  []pastFault
	marks []mark
	stall time.Duration // the longest
	worst float64       // excess of the whole run, in bursts
}

// soakRow is what the table says of a fault.
type soakRow struct {
	name     string
	times    int
	tally    tally
	excess   float64 // in bursts of the key
	recovery time.Duration
}

type pastFault struct {
	soakFault
	begin, end time.Duration
}

type mark struct {
	name string
	footprint
}

func startSoak(t *testing.T) *soak {
	s := &soak{t: t, begun: time.Now(), said: time.Now()}
	r := &s.redis
	r.single = redistest.Start(t)
	r.proxy = redistest.NewProxy(t, r.single.Addr)
	if distance, err := time.ParseDuration(os.Getenv("RATELIMIT_SOAK_DISTANCE")); err == nil {
		far := redistest.NewProxy(t, r.single.Addr)
		far.Delay(distance)
		r.proxy = redistest.NewProxy(t, far.Addr)
	}
	s.distance = pingTime(t, r.proxy.Addr)
	r.cluster = theCluster(t)
	r.sentinel = theSentinels(t)
	withoutFullCoverage(t, r.cluster)
	at, err := json.Marshal(soakStores{"redis://" + r.proxy.Addr + "/0", "redis://" + strings.Join(r.cluster.Addrs(), ","), r.sentinel.Addrs()})
	if err != nil {
		t.Fatal(err)
	}

	var addrs []string
	for range soakServers {
		p := redistest.StartProcess(t, soakURL, string(at))
		s.server, addrs = append(s.server, p), append(addrs, p.Read())
	}

	s.client = newClient(t, addrs)
	s.awaitCount()
	return s
}

// pingTime is the median time of a PING.
func pingTime(t *testing.T, addr string) time.Duration {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var took []time.Duration
	for range 100 {
		begin := time.Now()
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return quantile(took, 0.5)
}

// awaitCount waits until all servers have counted each other in each store. Only servers
// that are asked are counted.
func (s *soak) awaitCount() {
	redistest.Eventually(s.t, 2*ample, "all servers to count each other", func() bool {
		counted := true
		for _, store := range soakStoreNames {
			for _, server := range s.client.servers {
				resp, err := s.client.send(soakRequest{store: store, method: "GET", path: "/probe", subject: "somebody"}, server)
				counted = counted && err == nil && resp.Header.Get("X-Servers") == strconv.Itoa(soakServers)
			}
		}
		return counted
	})
}

// episode runs traffic through a fault that lasts about d, its end and a pause, and
// checks what came of it.
func (s *soak) episode(f soakFault, d time.Duration) {
	const pause = 4 * time.Second
	i := slices.IndexFunc(s.rows, func(r *soakRow) bool { return r.name == f.name })
	if i < 0 {
		i = len(s.rows)
		s.rows = append(s.rows, &soakRow{name: f.name, excess: math.Inf(-1)})
	}

	row := s.rows[i]
	row.times++
	begin := time.Since(s.client.start)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { s.client.traffic(quit); close(done) }()
	stop := sync.OnceFunc(func() { close(quit); <-done })
	defer stop() // if a server does not start again

	var stall time.Duration // the longest that this machine has kept a goroutine waiting
	watched := during(func() {
		start := time.Now()
		time.Sleep(time.Millisecond)
		stall = max(stall, time.Since(start))
	})

	subject := f.inject(d)
	recovery := s.recovered(f, subject)
	if f.heal != nil && !f.heal() && !f.heal() {
		s.t.Fatalf("%s: the servers are not healthy after %v", f.name, 4*ample)
	}
	time.Sleep(pause)
	stop()
	watched()
	s.stall = max(s.stall, stall)
	row.recovery = max(row.recovery, recovery)
	s.past = append(s.past, pastFault{f, begin, time.Since(s.client.start)})
	worst := s.check(f)
	row.excess = max(row.excess, worst)

	n := s.client.tally
	s.client.tally = tally{}
	row.tally.add(n)

	if longest := slices.Max(append(n.took, 0)); longest > late+slack+stall {
		s.t.Errorf("%s: a decision took %v, where the machine has stood still for %v; want at most %v", f.name, longest, stall, late+slack)
	}

	if time.Since(s.said) >= time.Minute || long {
		s.said = time.Now()
		fmt.Printf("%8v  %3d faults, the last: %s, %d requests, %d denied, %d without Redis, %.2f bursts over the bound, recovered in %v\n",
			time.Since(s.begun).Round(time.Second), len(s.past), f.name, n.requests, n.denied, n.degraded, max(worst, 0), recovery.Round(time.Millisecond))
	}
}

func (n *tally) add(m tally) {
	n.requests += m.requests
	n.denied += m.denied
	n.degraded += m.degraded
	n.late += m.late
	n.wrong += m.wrong
	n.took = append(n.took, m.took...)
}

// recovered is how long it takes until every server is answered by the store again.
func (s *soak) recovered(f soakFault, subject string) time.Duration {
	start := time.Now()
	q := soakRequest{store: f.store, method: "GET", path: "/probe", subject: subject}
	redistest.Together(len(s.client.servers), func(i int) {
		for deadline := start.Add(f.within + ample); ; time.Sleep(20 * time.Millisecond) {
			resp, err := s.client.send(q, s.client.servers[i])
			if err == nil && resp.Header.Get("X-Degraded") == "" {
				return
			}
			if time.Now().After(deadline) {
				s.t.Errorf("%s: server %d has not recovered after %v", f.name, i, time.Since(start))
				return
			}
		}
	})
	return time.Since(start)
}

// print writes the tables of SOAK.md.
func (s *soak) print(length time.Duration) {
	fmt.Printf("\n%v on %s, a PING of the single one in %v, three servers, %d requests a second.\n\n",
		length, s.redis.single.Version(), s.distance.Round(10*time.Microsecond), soakRate)
	fmt.Println("| fault | times | requests | denied | without Redis | over the bound, in bursts | p99 | p99.9 | late | recovery |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")

	for _, r := range s.rows {
		n := r.tally
		slices.Sort(n.took)
		over := "none"
		if r.excess > 0 {
			over = fmt.Sprintf("%.2f", r.excess)
		}
		fmt.Printf("| %s | %d | %d | %d | %d | %s | %v | %v | %d | %v |\n", r.name, r.times, n.requests, n.denied, n.degraded, over,
			quantile(n.took, 0.99).Round(100*time.Microsecond), quantile(n.took, 0.999).Round(100*time.Microsecond), n.late, r.recovery.Round(10*time.Millisecond))
	}

	fmt.Printf("\nOver the bound and what was lost, in the worst window of the whole run: %.2f bursts. Longest time that the machine stood still: %v.\n", max(s.worst, 0), s.stall.Round(time.Millisecond))
	fmt.Println("\n| server | heap | RSS | goroutines | files |\n|---|--:|--:|--:|--:|")
	for _, m := range s.marks {
		fmt.Printf("| %s | %.1f MB | %.1f MB | %d | %d |\n", m.name, float64(m.Heap)/1e6, float64(m.RSS)/1e6, m.Goroutines, m.Files)
	}
	fmt.Println()
}
