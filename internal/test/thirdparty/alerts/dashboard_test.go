package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is the part of a dashboard that Grafana needs to load it.
type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Datasource *source         `json:"datasource"`
	Query      json.RawMessage `json:"query"`
}

type panel struct {
	ID          int     `json:"id"`
	Type        string  `json:"type"`
	Title       string  `json:"title"`
	Description string  `json:"description"`
	Datasource  *source `json:"datasource"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []target `json:"targets"`
}

type source struct{ Type, UID string }

type target struct {
	RefID        string  `json:"refId"`
	Datasource   *source `json:"datasource"`
	Expr         string  `json:"expr"`
	LegendFormat string  `json:"legendFormat"`
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

// Each file of the folder is checked here.
func TestFiles(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 || files[0].Name() != "alerts.yaml" || files[1].Name() != "grafana.json" {
		t.Errorf("got %v; want alerts.yaml and grafana.json, or a test of what is new", files)
	}
}

// Grafana loads any dashboard, but does not show panels that share ids or places, or that
// query a missing data source.
func TestDashboardLoads(t *testing.T) {
	d := load(t)
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 || len(d.Panels) == 0 {
		t.Errorf("got uid %q, title %q, schemaVersion %d, %d panels; want all, and 36 or more", d.UID, d.Title, d.SchemaVersion, len(d.Panels))
	}

	ours := source{"prometheus", "${DS_PROMETHEUS}"}
	chosen := slices.ContainsFunc(d.Templating.List, func(v variable) bool {
		return v.Name == "DS_PROMETHEUS" && v.Type == "datasource" && string(v.Query) == `"prometheus"`
	})
	if !chosen {
		t.Error("there is no variable DS_PROMETHEUS to choose a Prometheus by")
	}

	for _, v := range d.Templating.List {
		if v.Type == "query" && (v.Datasource == nil || *v.Datasource != ours) {
			t.Errorf("variable %s: got data source %v; want %v", v.Name, v.Datasource, ours)
		}
	}

	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID <= 0 || ids[p.ID] {
			t.Errorf("panel %q: id is %d; want one above 0 of its own", p.Title, p.ID)
		}
		ids[p.ID] = true

		if !slices.Contains([]string{"timeseries", "stat", "state-timeline"}, p.Type) || p.Title == "" || p.Description == "" {
			t.Errorf("panel %d: got type %q, title %q, description %q", p.ID, p.Type, p.Title, p.Description)
		}

		g := p.GridPos
		if g.X < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
			t.Errorf("panel %q: got place %+v; want it within 24 columns", p.Title, g)
		}

		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" {
					t.Fatalf("panel %q overlaps %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}

		refs := map[string]bool{}
		if len(p.Targets) == 0 || p.Datasource == nil || *p.Datasource != ours {
			t.Errorf("panel %q: got %d targets, data source %v; want some, %v", p.Title, len(p.Targets), p.Datasource, ours)
		}
		for _, q := range p.Targets {
			if q.RefID == "" || refs[q.RefID] || q.Datasource == nil || *q.Datasource != ours || q.LegendFormat == "" {
				t.Errorf("panel %q: got target %+v; want a refId of its own, a legend, and %v", p.Title, q, ours)
			}
			refs[q.RefID] = true
		}
	}
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
