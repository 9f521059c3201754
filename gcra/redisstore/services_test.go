package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
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

			t.Run("processes", func(t *testing.T) { exactlyTwentyOfProcesses(t, url) })
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

// firstCalls opens the store with its defaults but the Timeout, which a busy machine exceeds. Of 64
// callers at once, with subjects of their own, each is decided, and so is each admission of a user
// and an address.
func firstCalls(t *testing.T, url string) {
	const callers, calls, admissions = 64, 50, 20
	log := new(diagtest.Text)
	r := openStore(t, url, config{Timeout: patience, Logger: log.Logger()})

	var failed atomic.Int64
	check := func(err error) {
		if err != nil && failed.Add(1) == 1 {
			t.Error(err) // only the first
		}
	}

	redistest.Together(callers, func(caller int) {
		for i := range calls {
			_, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint("first ", caller, " ", i), 10))
			check(err)
		}
	})

	for i := range admissions {
		_, err := r.Take(t.Context(), []gcra.Charge{hourly(fmt.Sprint("user ", i), 10), hourly(fmt.Sprint("address ", i), 10)})
		check(err)
	}

	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d calls failed; want none", n, callers*calls+admissions)
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

// serviceProcessURL makes this test binary a process of exactlyTwentyOfProcesses.
const serviceProcessURL = "REDISSTORE_TEST_SERVICE_URL"

// serviceProcess takes, for each line that it reads, with all its callers at once: each from the
// subject on the line, and each from a subject that the callers of its number share in all
// processes. So batches are for many subjects. It writes how many were allowed of each.
func serviceProcess(url string, in io.Reader, out io.Writer) error {
	r, err := redisstore.Open(url, config{Timeout: patience})
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintln(out, "ready")

	for lines := bufio.NewScanner(in); lines.Scan(); {
		var shared, others, failed atomic.Int64
		redistest.Together(2*callers, func(i int) {
			charge, allowed := hourly(lines.Text(), 20), &shared
			if i%2 == 1 {
				charge, allowed = hourly(fmt.Sprint(lines.Text(), " caller ", i), 1), &others
			}

			res, err := gcra.Take(context.Background(), r, charge)
			switch {
			case err != nil:
				fmt.Fprintln(os.Stderr, err)
				failed.Add(1)
			case res.Allowed:
				allowed.Add(1)
			}
		})

		if failed.Load() > 0 {
			return fmt.Errorf("%d calls failed", failed.Load())
		}
		fmt.Fprintln(out, shared.Load(), others.Load())
	}

	return nil
}

// exactlyTwentyOfProcesses lets four processes of 100 callers take from a bucket of 20, while as
// many others take from buckets of one.
func exactlyTwentyOfProcesses(t *testing.T, url string) {
	processes := startProcesses(t, 4, serviceProcessURL, url)
	for round := range 5 {
		for _, p := range processes {
			p.Write(fmt.Sprint("round ", round))
		}
		shared, others := 0, 0
		for _, p := range processes {
			var s, o int
			if _, err := fmt.Sscan(p.Read(), &s, &o); err != nil {
				t.Fatal(err)
			}
			shared, others = shared+s, others+o
		}

		if shared != 20 || others != callers {
			t.Errorf("round %d: %d of 400 allowed on one subject, and %d of 400 on %d subjects; want 20 and %d", round, shared, others, callers, callers)
		}
	}

	for _, p := range processes {
		p.End()
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
