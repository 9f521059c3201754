package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/examples/internal/smoke"
	"github.com/seed-e377111c/ratelimit/gcra"
)

func TestMain(m *testing.M) { smoke.Main(m, main) }

func TestStart(t *testing.T) { smoke.Start(t) }

// scene is the proxy before a model, and the store of its limits.
type scene struct {
	*testing.T
	store *gcra.Memory
	proxy *httptest.Server
}

func newScene(t *testing.T, model http.HandlerFunc) *scene {
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now() // stands still, so that nothing refills
	s := &scene{T: t, store: gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})}
	s.proxy = httptest.NewServer(newHandler(s.store, address))
	t.Cleanup(s.proxy.Close)
	return s
}

func (s *scene) ask(maxTokens int, content string) (status int, text string) {
	s.Helper()
	body := fmt.Sprintf(`{"max_tokens": %d, "messages": [{"role": "user", "content": %q}]}`, maxTokens, content)
	res, err := http.Post(s.proxy.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		s.Error(err)
	}
	return res.StatusCode, string(all)
}

// used checks what is used of the requests, the tokens of a minute and of the month.
func (s *scene) used(requests, tokens int64) {
	s.Helper()
	for _, b := range []struct {
		policy string
		limit  gcra.Limit
		want   int64
	}{{"requests", gcra.PerMinute(60), requests}, {"tokens", gcra.PerMinute(20_000).WithBurst(40_000), tokens}, {"month", gcra.Quota(1_020_000, gcra.Monthly), tokens}} {
		r, err := gcra.Peek(s.Context(), s.store, gcra.Charge{Subject: "ip:127.0.0.1", Policy: b.policy, Limit: b.limit})
		if got := b.limit.Capacity() - r.Remaining; err != nil || got != b.want {
			s.Errorf("%s: got %d used, %v; want %d", b.policy, got, err, b.want)
		}
	}
}

// A request costs what it has used in the end, and not what it has reserved.
func TestSettled(t *testing.T) {
	s := newScene(t, answer)
	for i := range int64(10) { // reserves 40,000 in all
		status, text := s.ask(4000, "why is the sky blue")
		if status != http.StatusOK || !strings.Contains(text, `"blue "`) || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Fatalf("got %d %q; want the whole answer", status, text)
		}
		s.used(i+1, 10*(i+1))
	}
}
