//go:build unix

package inflight_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/internal/test/nginxtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

const (
	siteServers = 3
	siteMax     = 3
	siteClients = 64
	siteRuns    = 50 * time.Millisecond
)

// counters is memory that all servers of the site share: what their handlers count.
type counters struct {
	running   atomic.Int64 // 16 bits for each server, so that all are read at one moment
	busy      atomic.Int64 // nanoseconds that handlers ran
	served    atomic.Int64
	denied    atomic.Int64
	undecided atomic.Int64
	peak      atomic.Int64 // most that ran at once since it was last set to 0
}

func openCounters(file string) (*counters, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*counters)(unsafe.Pointer(&memory[0])), nil
}

// on is how many of those that run do so on server i, and sum is how many run on all servers.
func on(i int, running int64) int64 { return running >> (16 * i) & 0xffff }

func sum(running int64) (n int64) {
	for i := range siteServers {
		n += on(i, running)
	}
	return n
}

// serve is the handler of server i.
func (b *counters) serve(i int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		begin := time.Now()
		for n := sum(b.running.Add(1 << (16 * i))); ; {
			if old := b.peak.Load(); n <= old || b.peak.CompareAndSwap(old, n) {
				break
			}
		}
		time.Sleep(siteRuns)
		b.running.Add(-1 << (16 * i))
		b.busy.Add(int64(time.Since(begin)))
		b.served.Add(1)
		_, _ = io.WriteString(w, "done")
	}
}

// siteServer is the process of a server. Its argument is the URL of Redis, the file of the counters, its number and its address.
func siteServer(arg string, in io.Reader, out io.Writer) error {
	var url, file, addr string
	var number int
	if _, err := fmt.Sscan(arg, &url, &file, &number, &addr); err != nil {
		return err
	}
	b, err := openCounters(file)
	if err != nil {
		return err
	}
	// A busy machine misses the default Timeout for so long that servers do not count each other.
	running, err := inflight.Open(url, inflight.Config{Timeout: 250 * time.Millisecond, Observe: func(_ *http.Request, d *inflight.Decision) {
		if d.Err != nil {
			b.undecided.Add(1)
		}
		if d.Full {
			b.denied.Add(1)
		}
	}})
	if err != nil {
		return err
	}
	user := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := http.Server{
		Handler:           running.Handler(inflight.Limit{Name: "exports", Key: user, Max: siteMax})(b.serve(number)),
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.Serve(listener) }()
	fmt.Fprintln(out, "ready")
	_, _ = io.ReadAll(in) // until the test ends
	ctx := context.Background()
	_ = server.Shutdown(ctx)
	return running.Close(ctx)
}

// site is three servers behind nginx, and clients of one user.
type site struct {
	*counters
	t       *testing.T
	redis   *redistest.Server
	args    [siteServers]string
	servers [siteServers]*redistest.Process
	alone   int64 // not decided before the last watch began
}

func (s *site) start(i int) {
	s.servers[i] = redistest.StartProcess(s.t, siteArg, s.args[i])
	if got := s.servers[i].Read(); got != "ready" {
		s.t.Fatalf("a server writes %q; want ready", got)
	}
}

// kill kills a server, and starts it again after a second. Then its handlers do not run.
func (s *site) kill(i int) {
	s.servers[i].Kill()
	s.running.Add(-on(i, s.running.Load()) << (16 * i))
	time.Sleep(time.Second)
	s.start(i)
}

// watch lets the clients go on for a time, and checks how many ran at once. It returns how many slots were in use in the mean.
// While a server gets no answer of Redis in time, it admits its share: what ran before and the larger of Max and the number of
// servers. What it admits so at the end of a watch runs on in the next.
func (s *site) watch(name string, lasts time.Duration, losses int64, event func()) (inUse float64) {
	alone := s.alone
	s.alone = s.undecided.Load()
	s.peak.Store(sum(s.running.Load()))
	served, denied, busy, begin := s.served.Load(), s.denied.Load(), s.busy.Load(), time.Now()
	event()
	time.Sleep(time.Until(begin.Add(lasts)))

	took := time.Since(begin)
	undecided := s.undecided.Load() - alone
	inUse = time.Duration(s.busy.Load()-busy).Seconds() / took.Seconds()
	s.t.Logf("%-14s %6.1f s: at most %d at once, %.2f in use, %d served, %d denied, %d not decided",
		name, took.Seconds(), s.peak.Load(), inUse, s.served.Load()-served, s.denied.Load()-denied, undecided)
	most := siteMax * (1 + losses)
	if undecided > 0 {
		most += max(siteMax, siteServers)
	}
	if s.peak.Load() > most {
		s.t.Errorf("%s: %d ran at once; want at most %d", name, s.peak.Load(), most)
	}
	return inUse
}

// A user may have three requests in flight on three servers behind nginx, whatever happens to the servers and to Redis. The
// long form, with RATELIMIT_CHAOS=long, takes ten minutes.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	rounds, calm, after := 2, time.Second, time.Second
	if os.Getenv("RATELIMIT_CHAOS") == "long" {
		rounds, calm, after = 10, 49*time.Second, 11*time.Second
	}

	dir := t.TempDir()
	s := &site{t: t, redis: redistest.Start(t)}
	var err error
	if s.counters, err = openCounters(filepath.Join(dir, "counters")); err != nil {
		t.Fatal(err)
	}
	var upstream strings.Builder
	for i := range s.args {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := free.Addr().String()
		_ = free.Close()
		s.args[i] = fmt.Sprint(s.redis.URL(), " ", filepath.Join(dir, "counters"), " ", i, " ", addr)
		fmt.Fprintf(&upstream, "server %s max_fails=1 fail_timeout=1s; ", addr)
		s.start(i)
	}

	client := nginxtest.Start(t, "upstream servers { "+upstream.String()+" keepalive 64; }", `
		location / { proxy_pass http://servers; proxy_http_version 1.1; proxy_set_header Connection ""; }`)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = siteClients
	stop, cancel := context.WithCancel(t.Context())
	ctx := t.Context()
	var wg sync.WaitGroup
	for range siteClients {
		wg.Go(func() {
			for stop.Err() == nil {
				time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://site/export", nil)
				req.Header.Set("X-User", "7")
				if res, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			}
		})
	}

	s.run(rounds, calm, after)
	cancel()
	wg.Wait()
}

// run lets things happen to the site.
func (s *site) run(rounds int, calm, after time.Duration) {
	s.watch("begin", after, 0, func() {})
	var sum float64
	for round := range rounds {
		sum += s.watch("calm", calm, 0, func() {})
		s.watch("killed", after, 0, func() { s.kill(round % siteServers) })
		if round%5 == 1 {
			s.watch("redis restarts", after, 1, func() {
				s.redis.Kill()
				s.redis.Restart()
			})
		}
	}

	mean := sum / float64(rounds)
	s.t.Logf("%.2f of %d slots were in use in the mean of the calm times", mean, siteMax)
	if long := calm > 10*time.Second; long && mean < 2.8 {
		s.t.Errorf("%.2f slots were in use in the mean; want 2.8 or more", mean)
	}
}
