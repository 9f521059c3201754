package main

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// naive is a sign-in with counters of its own: five wrong passwords in a quarter of an
// hour. The zero value charges first, by account and address. Each field is a mistake of
// a real server, and so are the context of the check and the fixed window.
type naive struct {
	key         func(account, address string) string // by less than both
	spelling    bool                                 // the account is counted as it is written, and found in any spelling
	late        bool                                 // counts when the password has been checked
	clears      bool                                 // a success clears the count
	outages     bool                                 // counts a check that failed
	keeps       bool                                 // keeps the count when the window is over, and the lock with it
	onlyKnown   bool                                 // says that an account is unknown, and does not count that
	now         func() time.Time
	mu          sync.Mutex
	wrong       map[string]int
	windowStart map[string]time.Time
}

func (n *naive) add(key string, units int) (count int, wait time.Duration) {
	const window = 15 * time.Minute
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wrong == nil {
		n.wrong, n.windowStart = map[string]int{}, map[string]time.Time{}
	}
	if n.now().Sub(n.windowStart[key]) >= window {
		left := 0
		if n.keeps {
			left = min(n.wrong[key], 4)
		}
		n.wrong[key], n.windowStart[key] = left, n.now()
	}
	n.wrong[key] = max(n.wrong[key]+units, 0)
	return n.wrong[key], n.windowStart[key].Add(window).Sub(n.now())
}

func (n *naive) handler(client keyfunc.Func, check checker) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := accountOf(r)
		counted := account
		if n.spelling {
			counted = r.PostFormValue("account")
		}
		address, _ := client(r)
		key := counted + " " + address
		if n.key != nil {
			key = n.key(counted, address)
		}

		units := 1
		if n.late {
			units = 0
		}
		if count, wait := n.add(key, units); count+1-units > 5 {
			n.add(key, -units)
			w.Header().Set("Retry-After", fmt.Sprint(math.Ceil(wait.Seconds())))
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}

		right, err := check(r.Context(), account, r.PostFormValue("password"))
		switch {
		case n.onlyKnown && account != "victim":
			n.add(key, -units)
			w.WriteHeader(http.StatusNotFound)
		case right && n.clears:
			n.add(key, -math.MaxInt32)
		case right, err != nil && !n.outages:
			n.add(key, -units)
		default:
			n.add(key, 1-units)
		}

		switch {
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case !right:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
}
