package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is the part of a dashboard that has queries.
type dashboard struct {
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

func load(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Every series that a query of the dashboard selects is there in a real run, every query has an
// answer with the labels of its legend, and every metric is on the dashboard: no panel is empty
// because of a typing error.
func testDashboard(t *testing.T, ask asks, all memory, minutes int) {
	d := load(t)
	used := map[string]bool{}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			query := asked(q.Expr)
			for _, name := range selected(t, all, query) {
				used[name] = true
			}

			shown := false
			for minute := range minutes {
				for _, one := range ask(t, query, minute) {
					shown = true
					for _, l := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
						if one.Metric.Get(l[1]) == "" {
							t.Fatalf("panel %q: got %v; want %s, which the legend has", p.Title, one.Metric, l[1])
						}
					}
				}
			}
			if !shown {
				t.Errorf("panel %q: %s has no answer", p.Title, q.Expr)
			}
		}
	}

	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query struct{ Query string }
		if err := json.Unmarshal(v.Query, &query); err != nil {
			t.Fatal(err)
		}

		found := values.FindStringSubmatch(query.Query)
		if found == nil {
			t.Errorf("variable %s: got query %q; want label_values(...)", v.Name, query.Query)
			continue
		}
		if answer := ask(t, "count by ("+found[2]+") ("+asked(found[1])+")", 0); len(answer) == 0 || answer[0].Metric.Get(found[2]) == "" {
			t.Errorf("variable %s: got %v; want values", v.Name, answer)
		}
	}

	for _, series := range all {
		name := series.Labels().Get(model.MetricNameLabel)
		if !used[name] && !strings.HasSuffix(name, "_duration_seconds_sum") {
			t.Errorf("no panel shows %s", name)
			used[name] = true
		}
	}
}

var (
	legend = regexp.MustCompile(`\{\{(.*?)\}\}`)
	values = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// asked is a query as Grafana sends it: with all jobs and policies.
func asked(query string) string {
	return strings.NewReplacer("$job", ".*", "$policy", ".*", "$__rate_interval", "5m").Replace(query)
}

// selected returns the metrics that a query uses. Each of its selectors finds something.
func selected(t *testing.T, all memory, query string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}

	for _, of := range parser.ExtractSelectors(parsed) {
		if !all.selects(of).Next() {
			t.Errorf("%s: there is no series %v", query, of)
		}
		for _, matcher := range of {
			if matcher.Name == model.MetricNameLabel {
				names = append(names, matcher.Value)
			}
		}
	}
	return names
}
