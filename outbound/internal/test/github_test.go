package test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/outbound/httpclient"
)

// githubLike is a server with GitHub's limits: each client has a fixed window that ends at a whole second,
// and responses have the X-RateLimit fields. deny writes the rest of a denial.
type githubLike struct {
	limit  int
	period time.Duration
	deny   func(w http.ResponseWriter, reset time.Time)

	mu      sync.Mutex
	windows map[string]*window // by client
}

type window struct {
	end  time.Time
	used int
}

func (s *githubLike) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := r.Header.Get("Client")
	now := time.Now()
	win := s.windows[client]

	if win == nil || !now.Before(win.end) {
		win = &window{end: now.Add(s.period).Truncate(time.Second)}
		s.windows[client] = win
	}
	win.used++
	w.Header().Set("Window", win.end.Format(time.TimeOnly))
	if win.used <= s.limit {
		rateLimited(w, s.limit, s.limit-win.used, win.end)
		return
	}
	s.deny(w, win.end)
}

func rateLimited(w http.ResponseWriter, limit, remaining int, reset time.Time) {
	w.Header().Set("X-RateLimit-Limit", fmt.Sprint(limit))
	w.Header().Set("X-RateLimit-Remaining", fmt.Sprint(remaining))
	w.Header().Set("X-RateLimit-Reset", fmt.Sprint(reset.Unix()))
	w.Header().Set("X-RateLimit-Used", fmt.Sprint(limit-remaining))
	w.Header().Set("X-RateLimit-Resource", "core")
}

// A GitHub-like server denies with a 429 or a 403, without Retry-After: X-RateLimit-Reset says when to come
// back. Its secondary limit denies with a 403 and Retry-After, and the primary limit is not used up. After
// the first denial nothing is sent in a window that is closed. The time is virtual: a window has so few
// requests that one which a busy machine holds up is denied, and slows its client beyond the MaxWait of others.
func TestGitHubLike(t *testing.T) {
	t.Parallel()
	tab := newTable(t, columns...)

	primary := func(status int) *githubLike {
		return &githubLike{limit: 5, period: 8 * time.Second, deny: func(w http.ResponseWriter, reset time.Time) {
			rateLimited(w, 5, 0, reset)
			http.Error(w, "API rate limit exceeded", status)
		}}
	}
	secondary := &githubLike{limit: 5, period: 3 * time.Second, deny: func(w http.ResponseWriter, reset time.Time) {
		rateLimited(w, 5000, 4000, time.Now().Add(time.Hour))
		w.Header().Set("Retry-After", fmt.Sprint(int(time.Until(reset).Seconds())+1))
		http.Error(w, "You have exceeded a secondary rate limit", http.StatusForbidden)
	}}

	calls := 10
	if long {
		calls = 15
	}
	for name, server := range map[string]*githubLike{
		"GitHub-like, 429":            primary(http.StatusTooManyRequests),
		"GitHub-like, 403":            primary(http.StatusForbidden),
		"GitHub-like, secondary, 403": secondary,
	} {

		server.windows = map[string]*window{}
		for _, callers := range []int{1, 5} {
			w := workload{
				callers: callers, calls: calls / callers, request: get("http://partner.example/"),
				config: httpclient.Config{Base: network{server, 20 * time.Millisecond}}, virtual: true,
			}

			w.run(t, tab, fmt.Sprintf("%s, callers %d", name, callers), func(t *testing.T, client string, x *exchanges) {
				d := x.denials()
				// Each of the callers may have sent a request when the first is denied.
				if d.mostInWindow > callers {
					t.Errorf("%d requests denied in a window; want at most %d", d.mostInWindow, callers)
				}
				if server != secondary && strings.Contains(client, "Adaptive") && d.windows > 1 {
					t.Errorf("requests were denied in %d windows; want one at most, as nothing remaining holds until the reset", d.windows)
				}
			})
		}
	}
}
