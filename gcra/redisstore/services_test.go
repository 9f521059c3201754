package redisstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// services are endpoints with the rules of managed services and of proxies. On each the store
// works, or says why it cannot.
var services = []struct {
	name string
	open func(testing.TB) *redistest.Service

	// Where the store cannot work: the code of the line that it logs, a part of its error or hint,
	// and a part of Ping's error.
	code       diag.Code
	line, ping string
}{
	{name: "hidden cluster", open: redistest.NewHiddenCluster},
	{name: "single-node cluster", open: redistest.NewSingleNodeCluster},
	{name: "Tair", open: redistest.NewTairProxy},
	{name: "proxy by the first key", open: redistest.NewFirstKeyProxy},
	{name: "proxy without hash tags", open: redistest.NewTaglessProxy, code: "redis-keys-apart",
		line: "runs scripts away from their keys", ping: "runs scripts away from their keys"},
	{name: "closes on HELLO", open: redistest.NewHelloCloser, code: diag.RedisUnreachable,
		line: "twemproxy", ping: "twemproxy, which closes connections on HELLO"},
	{name: "twemproxy", open: redistest.NewTwemproxy, code: diag.RedisUnreachable,
		line: "twemproxy", ping: "twemproxy, which closes connections on HELLO"},
	{name: "serverless", open: redistest.NewServerless},
	{name: "serverless without TIME", open: redistest.NewServerlessWithoutTime, code: diag.RedisProtocol,
		line: "does not let scripts read its clock (TIME)", ping: "does not let scripts read its clock (TIME): ERR "},
	{name: "without scripts", open: redistest.NewWithoutScripts, code: diag.RedisProtocol,
		line: "is not a Redis that this store can use", ping: "is not a Redis that this store can use: ERR unknown command"},
	{name: "node without allow-cross-slot-keys", open: redistest.NewNodeWithoutCrossSlot},
}

// Where the store works, it keeps its contract from the first call on, and Ping returns nil.
func TestServicesThatWork(t *testing.T) {
	t.Parallel()
	for _, tt := range services {
		if tt.code != "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			service := tt.open(t)
			url := service.URL()

			t.Run("first calls", func(t *testing.T) { firstCalls(t, url) })
			t.Run("contract", func(t *testing.T) {
				storetest.Run(t, func(t testing.TB) storetest.Backend {
					r := openStore(t, url, config{Prefix: newPrefix(), Timeout: patience, DenialTTL: -1})
					return storetest.Backend{Store: r, Advance: func(d time.Duration) {
						for _, server := range service.Servers {
							shift(t, server.Client(), r.Prefix(), d)
						}
					}}
				})
			})

			t.Run("grants of an outage", func(t *testing.T) {
				r := openStore(t, url, config{Timeout: patience})
				gcratest.MustTake(t, r, plenty)
				for i := range 300 {
					granted(t, r, 0, hourly(fmt.Sprint("grant ", i), 10))
				}
				redistest.Eventually(t, patience, "the grants to be charged", func() bool {
					return answers(r) && r.Stats().ReportedUnits == 300
				})
			})
			t.Run("Ping", func(t *testing.T) {
				if err := openStore(t, service.URL(), config{}).Ping(t.Context()); err != nil {
					t.Errorf("got %v; want nil", err)
				}
			})
		})
	}
}

// firstCalls opens two stores with the defaults but the Timeout, which a busy machine exceeds. From the first call on the limits
// are exact over both, and each admission of a user and an address is decided.
func firstCalls(t *testing.T, url string) {
	log := new(diagtest.Text)
	cfg := config{Timeout: patience, Logger: log.Logger()}
	r := openStore(t, url, cfg)
	exactlyTwenty(t, 0, r, openStore(t, url, cfg))
	for i := range 20 {
		gcratest.MustTake(t, r, hourly(fmt.Sprint("user ", i), 10), hourly(fmt.Sprint("address ", i), 10))
	}

	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("got log lines %q; want none", lines)
	}
	for _, s := range r.Stats().Servers {
		if s.Kind != redisstats.BySubject {
			t.Errorf("%q has kind %q; want %q", s.Server, s.Kind, redisstats.BySubject)
		}
	}
}

// exactlyTwenty has 400 callers of the stores take from each of 30 subjects, all at once, and checks that 20 calls of each are
// allowed.
func exactlyTwenty(t *testing.T, round int, stores ...*redisstore.Store) {
	t.Helper()

	const subjects = 30
	var allowed [subjects]atomic.Int64
	redistest.Together(400, func(caller int) {
		for i := range subjects {
			n := (i + caller) % subjects
			c := []gcra.Charge{hourly(fmt.Sprint(round, " ", n), 20), hourly(fmt.Sprint(round, " ", n), 30)}
			c[1].Policy = "q"

			if ok, err := stores[caller%len(stores)].Take(t.Context(), c[:1+n%2]); err != nil {
				t.Error(err)
			} else if ok {
				allowed[n].Add(1)
			}
		}
	})

	for n := range allowed {
		if got := allowed[n].Load(); got != 20 {
			t.Errorf("subject %d: got %d allowed of 400; want 20", n, got)
		}
	}
}

// Where the store cannot work, its calls fail within a second or so, the log has one line with the
// reason, and Ping returns it.
func TestServicesThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, tt := range services {
		if tt.code == "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log diagtest.Log
			r := openStore(t, tt.open(t).URL(), config{Timeout: patience, Logger: log.Logger()})

			redistest.Eventually(t, patience, "the line", func() bool {
				_, err := gcra.Take(t.Context(), r, hourly("s", 10))
				return err != nil && len(log.Lines()) > 0
			})

			line := log.Lines()[0]
			if text := line.Text + ": " + line.Attrs["error"] + "; " + line.Attrs["hint"]; line.Code() != tt.code || line.Level != tt.code.Level() || !strings.Contains(text, tt.line) {
				t.Errorf("got %v; want the code %s, and %q", line, tt.code, tt.line)
			}

			if err := r.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), tt.ping) {
				t.Errorf("Ping: got %v; want %q", err, tt.ping)
			}
			if res, err := gcra.Take(t.Context(), r, hourly("s", 10)); err == nil {
				t.Errorf("after Ping: got %+v; want an error", res)
			}
		})
	}
}
