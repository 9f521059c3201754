package faults

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A server at 500 requests a second whose Redis is killed, stopped, blackholed and
// slow, one after the other: every request is served, decisions keep to the Timeout,
// and afterwards the server has no more goroutines and files than before.
//
// The time is asserted in the long form only, which needs a machine that does nothing
// else.
func TestServerUnderFaults(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := rigAt(t, "redis://"+proxy.Addr, config{Timeout: 50 * time.Millisecond})
	s := underLoad(t, new(outcome), r)
	d := phase(time.Second/2, 20*time.Second)

	s.traffic(t, 500, d).only(t, "before", http.StatusOK) // connections are made
	before := held(t)

	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"none", func() {}, func() {}},
		{"killed", server.Kill, server.Restart},
		{"frozen", server.Pause, server.Resume},
		{"blackholed", proxy.Blackhole, proxy.Pass},
		{"slow", func() { proxy.Delay(200 * time.Millisecond) }, proxy.Pass},
	} {
		s.took = nil
		fault.begin()
		s.traffic(t, 500, d).only(t, fault.name, http.StatusOK)
		fault.end()
		redistest.Eventually(t, ample, "Redis to be asked again", func() bool { return answers(r) })
		s.traffic(t, 500, d/2).only(t, "after "+fault.name, http.StatusOK)

		slices.Sort(s.took)
		late := s.took[len(s.took)*999/1000]
		t.Logf("%-10s %6d decisions, half within %8v, 99.9%% within %8v, longest %8v", fault.name, len(s.took),
			s.took[len(s.took)/2].Round(time.Microsecond), late.Round(time.Microsecond), s.took[len(s.took)-1].Round(time.Microsecond))

		if most := 60 * time.Millisecond; long && late > most {
			t.Errorf("%s: 99.9%% of the decisions took up to %v; want at most %v", fault.name, late, most)
		}
		if fault.name != "none" && s.failed.Swap(0) == 0 {
			t.Errorf("%s: no decision was made without Redis; want some", fault.name)
		}
	}

	s.Client.CloseIdleConnections()
	before.released(t, 8) // connections to Redis that stay idle
}
