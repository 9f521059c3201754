package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Every answer that comes through tells the store what Redis knows, which is less than
// what the server has granted meanwhile.
func TestFault101LinkThatLosesPackets(t *testing.T) {
	beside(t)
	for _, percent := range []int{1, 10, 30, 50} {
		t.Run(fmt.Sprintf("%d%%", percent), func(t *testing.T) {
			p := float64(percent) / 100
			softly(t, fmt.Sprintf("%d %% of requests and replies lost", percent), func(proxy *redistest.Proxy) { proxy.Lose(p, p) })
		})
	}
	t.Run("requests", func(t *testing.T) {
		softly(t, "30 % of requests lost", func(proxy *redistest.Proxy) { proxy.Lose(0.3, 0) })
	})
	t.Run("replies", func(t *testing.T) {
		softly(t, "30 % of replies lost: the charge was made", func(proxy *redistest.Proxy) { proxy.Lose(0, 0.3) })
	})
	t.Run("resent", func(t *testing.T) {
		softly(t, "30 % of segments sent again after 200 ms", func(proxy *redistest.Proxy) { proxy.Resend(0.3, 200*time.Millisecond) })
	})
}

func TestFault102LatencyAroundTheTimeout(t *testing.T) {
	softly(t, "replies 20 to 80 ms late", func(proxy *redistest.Proxy) { proxy.DelayBetween(20*time.Millisecond, 80*time.Millisecond) })
}

func TestFault103NarrowLink(t *testing.T) {
	softly(t, "1 KB a second", func(proxy *redistest.Proxy) { proxy.Bandwidth(1000) })
}

// The other side has gone without an RST. A store drops a connection whose reply does
// not come, and opens another.
func TestFault104HalfOpenConnections(t *testing.T) {
	o := apart(t, "all connections half-open")
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	a := openAsker(t, o, "redis://"+proxy.Addr+"/0", 0, softLimit())
	a.under(t, proxy.HalfOpen, func() {})
	if n := proxy.Connections(); n < 2 {
		t.Errorf("%d connections; want another one", n)
	}
	proxy.Pass() // resets them, so that the store can be closed at once
}
