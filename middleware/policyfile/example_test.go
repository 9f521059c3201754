package policyfile_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

func Example() {
	policies, err := policyfile.Parse("policies.yaml", []byte(`
policies:
  - name: client
    key: client
    limit: 100/minute burst 20
  - name: login
    key: client
    routes: ["POST /login"]
    limit: 5/minute
`), policyfile.Funcs{Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr}})
	if err != nil {
		log.Fatal(err)
	}

	limiter, err := middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)
	if err != nil {
		log.Fatal(err)
	}
	d := limiter.Decide(httptest.NewRequest(http.MethodPost, "/login", nil))
	for _, p := range d.Results {
		fmt.Println(p.Policy, p.Limit, "remaining", p.Remaining)
	}

	// Output:
	// client 100/minute burst 20 remaining 19
	// login 5/minute remaining 4
}

// All mistakes are reported at once.
func ExampleParse_mistakes() {
	_, err := policyfile.Parse("policies.yaml", []byte(`
policies:
  - name: login
    key: clint
    limt: 5/minute
    shadow:
`), policyfile.Funcs{Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr}})
	fmt.Println(err)
	// Output:
	// policies.yaml:3:5: the policy has no limit; want limit or plans
	// policies.yaml:4:10: key is "clint"; want client
	// policies.yaml:5:5: field "limt" is unknown; want name, key, anonymous, limit, plans, overrides, routes, cost, shadow, max_delay, max_debt or on_failure
	// policies.yaml:6:5: shadow is empty; want true or false without quotes, or leave it out
}

// A server whose limits are reloaded when the file changes, and on SIGHUP.
func ExampleWatcher() {
	funcs := policyfile.Funcs{Keys: map[string]keyfunc.Func{"client": keyfunc.RemoteAddr}}
	policies, err := policyfile.Load("policies.yaml", funcs)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)
	if err != nil {
		log.Fatal(err)
	}

	w := &policyfile.Watcher{Path: "policies.yaml", Funcs: funcs, Limiter: limiter}
	go w.Run(context.Background())
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	go func() {
		for range hangUps {
			_ = w.Reload() // logs its error
		}
	}()

	log.Fatal(http.ListenAndServe("127.0.0.1:8080", ratelimit.From(limiter)(http.DefaultServeMux)))
}
