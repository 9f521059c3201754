package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/process"
)

func TestMain(m *testing.M) { process.Main(m, main) }

var metricsURL = regexp.MustCompile(`its metrics are on (http://\S+)`)

// The metrics match the requests: delayed, allowed and denied ones. The API has no /metrics.
func TestServer(t *testing.T) {
	p := process.Start(t, "-metrics", "127.0.0.1:0")
	var slow sync.WaitGroup
	for range 3 {
		slow.Go(func() { p.Get("/slow") })
	}
	slow.Wait()
	for n := 0; process.Status(p.Get("/hello")) != http.StatusTooManyRequests; n++ {
		if n == 1000 {
			t.Fatal("none of 1000 requests was denied")
		}
	}

	response, err := http.Get(metricsURL.FindStringSubmatch(p.Out.String())[1])
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	at := func(policy, outcome string) (n float64) {
		series := fmt.Sprintf("\nratelimit_decisions_total{ratelimit_outcome=%q,ratelimit_policy=%q} ", outcome, policy)
		_, rest, _ := strings.Cut(string(text), series)
		fmt.Sscan(rest, &n) // 0 if there is none
		return n
	}

	if allowed, denied := at("client", "allowed"), at("client", "denied"); allowed < 60 || denied != 1 {
		t.Errorf("client: got %v allowed, %v denied; want at least 60, and 1", allowed, denied)
	}
	if allowed, shadow, denied := at("tight", "allowed"), at("tight", "shadow_denied"), at("tight", "denied"); allowed < 20 || shadow < 1 || denied != 0 {
		t.Errorf("tight: got %v allowed, %v shadow denied, %v denied; want at least 20, some, and none", allowed, shadow, denied)
	}
	if passed := at("slow", "allowed") + at("slow", "delayed"); passed != 3 { // how many wait depends on how fast they come
		t.Errorf("slow: got %v; want 3", passed)
	}
	if process.Status(p.Get("/metrics")) == http.StatusOK {
		t.Error("the API serves /metrics; want that on its own address only")
	}

	p.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Errorf("after SIGTERM: got %v; want exit 0", err)
	}
}
