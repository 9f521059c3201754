// Package alerts checks the alert rules and the dashboard in deploy with Prometheus' own parser,
// on the metrics of a real run of examples/metrics.
package alerts

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/seed-e377111c/ratelimit/internal/test/process"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

const (
	root     = "../../../.."
	patience = time.Minute
)

var (
	sample  = regexp.MustCompile(`(?m)^(ratelimit_\w+(?:\{.*\})?) \S+$`)
	open    = regexp.MustCompile(`(?m)^ratelimit_redis_breaker_status\{.*state="open".*\} 1$`)
	listens = regexp.MustCompile(`its metrics are on (http://\S+)`)
	legend  = regexp.MustCompile(`\{\{(.*?)\}\}`)
	values  = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// No rule and no panel stays silent because of a typing error: each selector of a query finds series in a real run,
// with the labels of its legend, and every metric is on the dashboard.
func TestRealRun(t *testing.T) {
	all, shown := scrape(t), map[string]bool{}

	// check returns the series that a query selects. Grafana sends it with all jobs and policies.
	check := func(where, query string) (found []labels.Labels) {
		parsed, err := parser.ParseExpr(strings.NewReplacer("$job", ".*", "$policy", ".*", "$__rate_interval", "5m").Replace(query))
		if err != nil {
			t.Fatalf("%s: %s: %v", where, query, err)
		}
		for _, selector := range parser.ExtractSelectors(parsed) {
			before := len(found)
			for _, series := range all {
				if matches(series, selector) {
					found = append(found, series)
				}
			}
			if len(found) == before {
				t.Errorf("%s: there is no series %v", where, selector)
			}
		}
		return found
	}

	rules, errs := rulefmt.ParseFile(filepath.Join(root, "deploy", "alerts.yaml"), false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, rule := range rules.Groups[0].Rules {
		check(rule.Alert, rule.Expr)
	}

	var dashboard struct {
		Annotations struct{ List []struct{ Expr string } }
		Templating  struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}

	marks := dashboard.Annotations.List[0].Expr // Prometheus makes this series of an alert that fires
	all = append(all, labels.FromStrings(model.MetricNameLabel, "ALERTS", "alertname", rules.Groups[0].Rules[0].Alert, "alertstate", "firing", "job", "api"))
	check("annotations", marks)
	all = all[:len(all)-1]

	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, series := range check(panel.Title, target.Expr) {
				shown[series.Get(model.MetricNameLabel)] = true
				for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					if series.Get(label[1]) == "" {
						t.Errorf("panel %q: got %v; want %s, which the legend has", panel.Title, series, label[1])
					}
				}
			}
		}
	}

	for _, variable := range dashboard.Templating.List {
		if variable.Type != "query" {
			continue
		}
		var query struct{ Query string }
		if err := json.Unmarshal(variable.Query, &query); err != nil {
			t.Fatal(err)
		}
		found := values.FindStringSubmatch(query.Query)
		if found == nil || check(variable.Name, found[1])[0].Get(found[2]) == "" {
			t.Errorf("variable %s: got query %q; want label_values(...) that finds some", variable.Name, query.Query)
		}
	}

	for _, series := range all {
		if name := series.Get(model.MetricNameLabel); !shown[name] && !strings.HasSuffix(name, "_duration_seconds_sum") {
			t.Errorf("no panel shows %s", name)
			shown[name] = true
		}
	}
}

func matches(series labels.Labels, selector []*labels.Matcher) bool {
	for _, m := range selector {
		if !m.Matches(series.Get(m.Name)) {
			return false
		}
	}
	return true
}

// scrape returns the series of a server whose Redis has answered and then has not.
func scrape(t *testing.T) (all []labels.Labels) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	name := filepath.Join(t.TempDir(), "metrics")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", name, "./examples/metrics")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	api := process.StartProgram(t, name, "-metrics", "127.0.0.1:0", "-redis", "redis://"+proxy.Addr+"/0")
	api.MayLog = []string{""}
	url := listens.FindStringSubmatch(api.Out.String())[1]
	api.Get("/report")
	for range 61 { // of which one is denied
		api.Get("/hello")
	}
	proxy.Refuse()

	var text string
	redistest.Eventually(t, patience, "a breaker to be open", func() bool {
		api.Get("/slow")
		client := http.Client{Timeout: patience}
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(body)
		return open.MatchString(text)
	})

	for _, found := range sample.FindAllStringSubmatch(text, -1) {
		series, err := parser.ParseMetric(found[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, labels.NewBuilder(series).Set("job", "api").Set("instance", "api-1").Labels())
	}
	return all
}
