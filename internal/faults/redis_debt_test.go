package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// lossy is a proxy that loses some of what clients write: the connection stays open, and
// no reply comes.
type lossy struct {
	addr string
	loss atomic.Int64 // percent
}

func newLossy(t *testing.T, target string) *lossy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &lossy{addr: ln.Addr().String()}
	var links sync.WaitGroup
	t.Cleanup(links.Wait)
	t.Cleanup(func() { ln.Close() })
	links.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			links.Go(func() { p.copy(server, client, true) })
			links.Go(func() { p.copy(client, server, false) })
		}
	})
	return p
}

func (p *lossy) copy(to, from net.Conn, loses bool) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if loses && rand.Int64N(100) < p.loss.Load() {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// A link loses 30 % of what is sent to Redis. Each server grants alone while it waits, and
// forgets none of it when Redis answers: what passes is the bound and once a burst, however
// long this lasts.
func TestFault100LossyLink(t *testing.T) {
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers, " servers"), func(t *testing.T) {
			o := fault(t, fmt.Sprint("30 % of packets to Redis are lost, servers: ", servers))
			proxy := newLossy(t, redistest.Start(t).Addr)
			const burst, interval = 5, 200 * time.Millisecond
			r, err := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			var limiters []*middleware.Limiter
			var stores []*redisstore.Store
			for range servers {
				store, err := redisstore.Open("redis://" + proxy.addr + "/0")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { store.Close() })
				store.Logger = silence
				l := middleware.Must(middleware.New(middleware.Config{Store: store, Instances: servers, Logger: silence}, middleware.Policy{
					Name: "client", Key: func(*http.Request) (string, error) { return "a", nil },
					Limit: gcra.Limit{Count: 1, Per: interval, Burst: burst},
				}))
				l.Decide(r)
				limiters, stores = append(limiters, l), append(stores, store)
			}
			proxy.loss.Store(30)
			lasts := 8 * time.Second
			if long {
				lasts = 25 * time.Second
			}
			var admitted atomic.Int64
			begin := time.Now()
			var callers sync.WaitGroup
			for i := range max(4, 2*servers) {
				callers.Go(func() {
					for time.Since(begin) < lasts {
						if limiters[i%servers].Decide(r).Allowed {
							admitted.Add(1)
						}
						time.Sleep(4 * time.Millisecond)
					}
				})
			}
			excess := func() float64 {
				return float64(admitted.Load()) - burst - float64(time.Since(begin))/float64(interval)
			}
			var most, atTen float64
			for second := 1; time.Since(begin) < lasts; second++ {
				time.Sleep(time.Second)
				if most = max(most, excess()); second == 10 {
					atTen = most
				}
				t.Logf("%2d s: %3d units, %+.1f of the bound", second, admitted.Load(), excess())
			}
			callers.Wait()
			var local, paid int64
			for _, s := range stores {
				stats := s.Stats()
				local, paid = local+stats.LocalUnits, paid+stats.PaidUnits
			}
			t.Logf("%d units were granted alone, %d paid", local, paid)
			o.over.Store(max(int64(most)-burst, 0))
			if most > burst {
				t.Errorf("%.1f units more than the bound; want at most %d", most, burst)
			}
			if lasts > 10*time.Second && most > max(atTen+burst/2., burst/2.) {
				t.Errorf("%.1f units more than the bound in 10 s, and %.1f in %v; want no growth", atTen, most, lasts)
			}
		})
	}
}
