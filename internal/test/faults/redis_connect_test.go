package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Over every kind of connection the decisions are the same, and so is the behaviour
// when it breaks.
func TestFault95EveryWayToConnect(t *testing.T) {
	o := apart(t, "TLS, unix socket, RESP2 and 3, password, through URLs and options")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	certs := redistest.NewCertificates(t)
	server := redistest.Start(t, "--unixsocket", socket, "--requirepass", "pass word&%")
	// redistest does not choose a port for TLS.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := ln.Addr().(*net.TCPAddr)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, set := range [][2]string{{"tls-cert-file", certs.CertFile}, {"tls-key-file", certs.KeyFile}, {"tls-ca-cert-file", certs.CAFile}, {"tls-auth-clients", "no"}} {
		do(t, server, "config", "set", set[0], set[1])
	}
	do(t, server, "config", "set", "tls-port", secure.Port)

	cfg := config{Timeout: ample, DenialTTL: -1}
	rigs := map[string]*rig{
		"URL":       rigAt(t, server.URL(), cfg),
		"URL RESP3": rigAt(t, server.URL()+"?protocol=3", cfg),
	}
	for name, set := range map[string]func(*redis.Options){
		"RESP2": func(o *redis.Options) { o.Protocol = 2 },
		"RESP3": func(o *redis.Options) { o.Protocol = 3 },
		"unix":  func(o *redis.Options) { o.Network, o.Addr = "unix", socket },
		"TLS":   func(o *redis.Options) { o.Addr, o.TLSConfig = secure.String(), &tls.Config{RootCAs: certs.Roots} },
	} {
		options := server.Options()
		set(options)
		rigs[name] = rigOn(t, closing(t, redis.NewClient(options)), cfg)
	}
	for name, r := range rigs {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			works(t, r)
			do(t, server, "script", "flush")
			for i := range int64(6) {
				res, err := o.take(r, daily("one", 5))
				if want := i < 5; err != nil || res.Allowed != want || res.Remaining != max(4-i, 0) {
					t.Errorf("call %d: got %+v, %v; want allowed %v, %d remaining", i, res, err, want, max(4-i, 0))
				}
			}
			one, other := daily("one", 5), daily("other", 5)
			if charges := mustTake(t, r, other, one); passed(charges) {
				t.Error("a request with a limit that is used up was allowed")
			}
			if n := spent(t, r, other); n != 0 {
				t.Errorf("a denied request has taken %d units", n)
			}
			if err := r.Refund(t.Context(), []gcra.Charge{one}); err != nil {
				t.Error(err)
			}
			if n := spent(t, r, one); n != 4 {
				t.Errorf("%d units gone after a refund; want 4", n)
			}
			do(t, server, "client", "kill", "type", "normal", "skipme", "yes")
			redistest.Eventually(t, ample, "the store to connect again", func() bool { return answers(r) })
		})
	}
	strangers := server.Options()
	strangers.Addr, strangers.TLSConfig = secure.String(), &tls.Config{RootCAs: x509.NewCertPool()}
	if _, err := o.take(rigOn(t, closing(t, redis.NewClient(strangers)), config{}), plenty("somebody")); err == nil {
		t.Error("a server whose certificate is not trusted was asked all the same")
	}
}

// Close ends calls in flight. They return, and
// later ones fail.
func TestFault96GracefulShutdown(t *testing.T) {
	o := fault(t, "Close with calls in flight, on a healthy and on a silent Redis")
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	before := held(t)
	for name, fail := range map[string]func(){"healthy": proxy.Pass, "slow": func() { proxy.Delay(50 * time.Millisecond) }, "silent": proxy.Blackhole, "gone": proxy.Refuse} {
		proxy.Pass()
		r := rigAt(t, "redis://"+proxy.Addr, config{})
		works(t, r)
		fail()
		var under atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			redistest.Together(30, func(i int) {
				under.Add(1)
				for range 5 {
					_, _ = o.take(r, plenty(fmt.Sprint(i))) // returns an answer or an error
				}
			})
		}()
		redistest.Eventually(t, ample, "calls to be in flight", func() bool { return under.Load() == 30 })
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
		select {
		case <-done:
		case <-time.After(ample):
			t.Fatalf("%s: calls in flight at Close have not returned", name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ample)
		_, err := gcra.Take(ctx, r, plenty("late"))
		if cancel(); err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			t.Errorf("%s: after Close: got %v; want an error at once", name, err)
		}
	}
	proxy.Pass()
	proxy.Reset()
	before.released(t, 2)
	o.inTime(t, budget)
}
