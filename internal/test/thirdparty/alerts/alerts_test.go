// Package alerts checks the alert rules and the dashboard in deploy with Prometheus' own parser
// and engine, on the metrics of a real run of examples/metrics.
package alerts

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/seed-e377111c/ratelimit/internal/test/process"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

const (
	root     = "../../../.."
	patience = time.Minute
)

const calm = 5 // minutes of a run in which all is well

func TestRealRun(t *testing.T) {
	scrapes := run(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: patience})
	t.Cleanup(func() { _ = engine.Close() })

	all := stored(scrapes)
	ask := func(t *testing.T, query string, minute int) promql.Vector {
		t.Helper()
		q, err := engine.NewInstantQuery(t.Context(), all, nil, query, time.Unix(0, 0).Add(time.Duration(minute)*time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		found, err := q.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return found
	}

	t.Run("alerts", func(t *testing.T) { testAlerts(t, ask, len(scrapes)) })
	t.Run("dashboard", func(t *testing.T) { testDashboard(t, ask, all, len(scrapes)) })
}

// asks is a query in a minute of the run.
type asks func(t *testing.T, query string, minute int) promql.Vector

// run returns the metrics of each minute of a server: first all is well, then a quota nears its
// end and many requests are denied, and then Redis does not answer.
func run(t *testing.T) (scrapes []string) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	api, metrics := start(t, "redis://"+proxy.Addr+"/0")
	denials, outage, after := 10, 5, 15 // minutes

	for range calm {
		api.Get("/hello")
		scrapes = append(scrapes, get(t, metrics))
	}

	for range 18 {
		api.Get("/report")
	}
	for range denials {
		for range 20 {
			api.Get("/hello")
		}
		scrapes = append(scrapes, get(t, metrics))
	}

	proxy.Refuse()
	for range outage {
		var text string
		redistest.Eventually(t, patience, "a breaker to be open", func() bool {
			api.Get("/slow")
			text = get(t, metrics)
			return open.MatchString(text)
		})
		scrapes = append(scrapes, text)
	}
	for range after {
		scrapes = append(scrapes, scrapes[len(scrapes)-1])
	}
	return scrapes
}

// Each rule parses, is silent while all is well, and fires for as long as it wants when what it
// is about happens. The dashboard marks it.
func testAlerts(t *testing.T, ask asks, minutes int) {
	groups, errs := rulefmt.ParseFile(filepath.Join(root, "deploy", "alerts.yaml"), false, model.UTF8Validation)
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		return
	}

	marks, err := parser.ParseMetricSelector(asked(load(t).Annotations.List[0].Expr))
	if err != nil {
		t.Fatal(err)
	}

	for _, rule := range groups.Groups[0].Rules {
		var longest, now time.Duration
		for minute := range minutes {
			found := ask(t, rule.Expr, minute)
			now = grown(now, found)
			longest = max(longest, now)
			for _, one := range found {
				alert := labels.NewBuilder(one.Metric).Set("__name__", "ALERTS").Set("alertname", rule.Alert).Set("alertstate", "firing").Labels()
				for _, m := range marks {
					if value := alert.Get(m.Name); value == "" || !m.Matches(value) {
						t.Fatalf("%s: the dashboard wants %v; got %v", rule.Alert, m, alert)
					}
				}
			}
			if minute < calm && len(found) > 0 {
				t.Errorf("%s: got %v in minute %d; want nothing, as all is well", rule.Alert, found, minute)
			}
		}
		if longest-time.Minute < time.Duration(rule.For) {
			t.Errorf("%s: holds for %v; want %v, or it does not fire", rule.Alert, longest-time.Minute, rule.For)
		}
	}
}

// grown is how long a rule holds: one more minute, or none.
func grown(d time.Duration, found promql.Vector) time.Duration {
	if len(found) == 0 {
		return 0
	}
	return d + time.Minute
}

var (
	open    = regexp.MustCompile(`(?m)^ratelimit_redis_breaker_status\{.*state="open".*\} 1$`)
	sample  = regexp.MustCompile(`(?m)^(ratelimit_\w+)(?:\{(.*)\})? (\S+)$`)
	listens = regexp.MustCompile(`its metrics are on (http://\S+)`)
)

// memory is a Prometheus' storage of scrapes, one in each minute.
type memory []storage.Series

func stored(scrapes []string) (all memory) {
	values := map[string][]chunks.Sample{}
	for minute, text := range scrapes {
		for _, m := range sample.FindAllStringSubmatch(text, -1) {
			value, err := strconv.ParseFloat(m[3], 64)
			if err != nil {
				panic(err)
			}
			values[m[1]+"{"+m[2]+"}"] = append(values[m[1]+"{"+m[2]+"}"], point{int64(minute) * 60_000, value})
		}
	}

	for name, points := range values {
		found, err := parser.ParseMetric(name)
		if err != nil {
			panic(err)
		}
		all = append(all, storage.NewListSeries(labels.NewBuilder(found).Set("job", "api").Set("instance", "api-1").Labels(), points))
	}
	return all
}

// Querier implements [storage.Queryable].
func (m memory) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		return m.selects(matchers)
	}}, nil
}

func (m memory) selects(matchers []*labels.Matcher) *set {
	s := &set{}
	for _, one := range m {
		if !slices.ContainsFunc(matchers, func(l *labels.Matcher) bool { return !l.Matches(one.Labels().Get(l.Name)) }) {
			s.series = append(s.series, one)
		}
	}
	return s
}

// set implements [storage.SeriesSet].
type set struct {
	series []storage.Series
	next   int
}

func (s *set) Next() bool                        { s.next++; return s.next <= len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.next-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// point implements [chunks.Sample].
type point struct {
	t int64
	f float64
}

func (p point) T() int64                      { return p.t }
func (p point) F() float64                    { return p.f }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// start builds and starts the example, and returns it and the URL of its metrics.
func start(t *testing.T, redis string) (p *process.Process, metrics string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "metrics")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", name, "./examples/metrics")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	p = process.StartProgram(t, name, "-metrics", "127.0.0.1:0", "-redis", redis)
	p.MayLog = []string{""}
	return p, listens.FindStringSubmatch(p.Out.String())[1]
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
