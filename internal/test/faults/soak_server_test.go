package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// soakURL makes this test binary a server of [TestSoak]: the JSON of a [soakStores].
const soakURL = "RATELIMIT_FAULTS_SOAK"

// soakServers is how many servers share the limits. They count each other.
const soakServers = 3

// soakStores are where the servers find their stores.
type soakStores struct {
	Single, Cluster string // URLs
	Sentinels       []string
}

// soakStoreNames are the first elements of the paths of a server.
var soakStoreNames = []string{"single", "cluster", "sentinel"}

// soakPolicy is one of the limits of each store, with what the checks need.
type soakPolicy struct {
	middleware.Policy
	limits  []gcra.Limit // one of them, by the subject
	maxCost int64
}

// soakPolicies are the same on all stores. An expensive request costs a third of the
// burst at most, so what three servers grant alone together is at most a burst.
func soakPolicies() []soakPolicy {
	plans := []gcra.Limit{gcra.PerMinute(120).WithBurst(20), gcra.PerSecond(1).WithBurst(6)}
	list := []soakPolicy{
		{Policy: middleware.Policy{Name: "client", Routes: []string{"GET /hello", "GET /plan", "POST /work", "GET /queue", "GET /quota"}}, limits: []gcra.Limit{gcra.PerSecond(5).WithBurst(10)}, maxCost: 1},
		{Policy: middleware.Policy{Name: "plan", Routes: []string{"GET /plan"}}, limits: plans, maxCost: 1},
		{Policy: middleware.Policy{Name: "work", Routes: []string{"POST /work"}, Cost: soakCost}, limits: []gcra.Limit{gcra.PerSecond(10).WithBurst(24)}, maxCost: 8},
		{Policy: middleware.Policy{Name: "queue", Routes: []string{"GET /queue"}, MaxDelay: 300 * time.Millisecond}, limits: []gcra.Limit{gcra.PerSecond(4).WithBurst(6)}, maxCost: 1},
		{Policy: middleware.Policy{Name: "quota", Routes: []string{"GET /quota"}}, limits: []gcra.Limit{gcra.Quota(30, gcra.Daily)}, maxCost: 1},
		{Policy: middleware.Policy{Name: "probe", Routes: []string{"GET /probe"}}, limits: []gcra.Limit{gcra.PerSecond(100_000)}, maxCost: 1},
	}

	for i := range list {
		p := &list[i]
		p.Key = byClient
		if p.Limit = p.limits[0]; len(p.limits) > 1 {
			p.LimitFor = func(r *http.Request) gcra.Limit { return p.limitOf(r.Header.Get("X-Client")) }
		}
	}

	return list
}

func (p *soakPolicy) limitOf(subject string) gcra.Limit {
	return p.limits[crc32.ChecksumIEEE([]byte(subject))%uint32(len(p.limits))]
}

func soakCost(r *http.Request) int64 {
	n, err := strconv.Atoi(r.Header.Get("X-Cost"))
	if err != nil {
		return 1
	}
	return int64(n)
}

// soakServer serves until its input ends. It writes its address, and for each line that
// it reads the [footprint] of the process as JSON.
func soakServer(arg string, in io.Reader, out io.Writer) error {
	slog.SetDefault(silence) // what is logged in an outage has tests of its own
	var at soakStores
	if err := json.Unmarshal([]byte(arg), &at); err != nil {
		return err
	}

	mux := http.NewServeMux()
	for _, name := range soakStoreNames {
		store, err := at.open(name)
		if err != nil {
			return err
		}
		defer store.Close()
		cfg := middleware.Config{Store: store, Observe: showDecision(store)}
		var policies []middleware.Policy
		for _, p := range soakPolicies() {
			policies = append(policies, p.Policy)
		}
		limiter, err := middleware.New(cfg, policies...)
		if err != nil {
			return err
		}

		routes := http.NewServeMux()
		for _, pattern := range []string{"GET /hello", "GET /plan", "POST /work", "GET /queue", "GET /quota", "GET /probe"} {
			routes.HandleFunc(pattern, soakHandler)
		}
		mux.Handle("/"+name+"/", http.StripPrefix("/"+name, withHeader(ratelimit.From(limiter)(routes))))
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	server := &http.Server{Handler: mux, ReadHeaderTimeout: ample}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	fmt.Fprintln(out, ln.Addr())

	for lines := bufio.NewScanner(in); lines.Scan(); {
		f, err := ownFootprint()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(f); err != nil {
			return err
		}
	}

	if err := server.Close(); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open opens a store as docs/stores.md shows it.
func (at soakStores) open(name string) (*redisstore.Store, error) {
	switch name {
	case "single":
		return redisstore.Open(at.Single, config{})
	case "cluster":
		return redisstore.Open(at.Cluster, config{})
	}
	return redisstore.New(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "mymaster", SentinelAddrs: at.Sentinels, ContextTimeoutEnabled: true,
		DialTimeout: 500 * time.Millisecond, ReadTimeout: 500 * time.Millisecond, MaxRetries: -1, Protocol: 2,
	}), config{})
}

type headerKey struct{}

// withHeader lets showDecision set fields of the response.
func withHeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), headerKey{}, w.Header())))
	})
}

// showDecision tells the client how long the decision took, whether it was made without
// Redis, and how many servers the store has counted.
func showDecision(store *redisstore.Store) func(*http.Request, *middleware.Decision) {
	return func(r *http.Request, d *middleware.Decision) {
		h := r.Context().Value(headerKey{}).(http.Header)
		h.Set("X-Took", strconv.FormatInt(int64(d.Took), 10))
		h.Set("X-Servers", strconv.Itoa(store.Stats().Instances))
		if d.Err != nil {
			h.Set("X-Degraded", strings.Join(d.Degraded(), " "))
		}
	}
}

// soakHandler refunds or settles what the request was charged, if it asks for it.
func soakHandler(w http.ResponseWriter, r *http.Request) {
	d := middleware.FromContext(r.Context())
	var err error
	switch word, n, _ := strings.Cut(r.Header.Get("X-After"), " "); word {
	case "refund":
		err = d.Refund(r.Context())
	case "settle":
		var cost int64
		if cost, err = strconv.ParseInt(n, 10, 64); err == nil {
			err = d.Settle(r.Context(), cost, "work")
		}
	}
	if err != nil {
		w.Header().Set("X-After", "failed")
	}
	_, _ = io.WriteString(w, "hello\n") // the client may be gone
}

// footprint is what a process holds.
type footprint struct {
	Heap, RSS         int64 // in bytes, after garbage collection
	Goroutines, Files int
}

// ownFootprint returns the footprint of this process. Where there is no /proc, RSS and Files are 0.
func ownFootprint() (f footprint, err error) {
	debug.FreeOSMemory() // with a garbage collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f.Heap, f.Goroutines = int64(m.HeapAlloc), runtime.NumGoroutine()
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.Files = len(entries)
	}
	status, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}

	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(kb, &f.RSS); err != nil {
				return f, err
			}
			f.RSS <<= 10
		}
	}

	return f, err
}

// flat reports whether the process holds no more than before, apart from what the pools
// and tables of the store may still take: a connection pool for each of the eight servers
// that it calls, and the room of Go's heap that is not given back at once.
func (f footprint) flat(before footprint) bool {
	return f.Heap <= before.Heap*5/4+4<<20 && f.RSS <= before.RSS*5/4+16<<20 &&
		f.Goroutines <= before.Goroutines+10 && f.Files <= before.Files+40
}
