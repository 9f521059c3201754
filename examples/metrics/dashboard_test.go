package main

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
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
	text, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
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

// Every metric, label and label value of a query exists when the example is scraped, so no
// panel is empty because of a typing error.
func TestDashboardQueries(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Any(t).Options().Addr)
	p := start(t, "-redis", "redis://"+proxy.Addr+"/0")
	proxy.Refuse()
	if status, _ := get(t, p.api+"/hello"); status != http.StatusOK {
		t.Errorf("Redis is down: got %d; want 200", status)
	}

	proxy.Pass()
	p.use(t)
	_, text := get(t, p.metrics)
	there := scraped(t, text)

	d := load(t)
	used := map[string]bool{}
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			metrics, err := there.check(q)
			if err != nil {
				t.Errorf("panel %q: %s: %v", p.Title, q.Expr, err)
			}
			for _, m := range metrics {
				used[m] = true
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

		found := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(query.Query)
		if found == nil {
			t.Errorf("variable %s: got query %q; want label_values(...)", v.Name, query.Query)
			continue
		}
		if _, err := there.check(target{Expr: "sum by (" + found[2] + ") (" + found[1] + ")"}); err != nil {
			t.Errorf("variable %s: %v", v.Name, err)
		}
	}

	for metric := range there.labels {
		if strings.HasPrefix(metric, "ratelimit_") && !used[metric] && !strings.HasSuffix(metric, "_duration_seconds_sum") {
			t.Errorf("no panel shows %s", metric)
		}
	}
}
