package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exposed is a scrape: series with values, and each metric's labels with their values.
type exposed struct {
	values map[string]float64
	labels map[string]map[string][]string // by metric, label
}

var (
	sample = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? (\S+)$`)
	pair   = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// scraped parses the text of a scrape.
func scraped(t *testing.T, text string) exposed {
	t.Helper()
	e := exposed{map[string]float64{}, map[string]map[string][]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}

		found := sample.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("got %q; want a sample", line)
		}
		value, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}

		series, _, _ := strings.Cut(line, " ")
		e.values[series] = value
		labels := e.labels[found[1]]
		if labels == nil {
			labels = map[string][]string{}
			e.labels[found[1]] = labels
		}

		for _, kv := range pair.FindAllStringSubmatch(found[2], -1) {
			labels[kv[1]] = append(labels[kv[1]], kv[2])
		}
	}
	return e
}

// query checks a query against a scrape. It knows the part of PromQL that the dashboard
// uses.
type query struct {
	there   exposed
	metrics []string // that it uses
	groups  []string // labels that it groups by
	errs    []error
}

var (
	window   = regexp.MustCompile(`\[(.*?)\]`)
	selector = regexp.MustCompile(`([a-z_]+)\{([^{}]*)\}`)
	matcher  = regexp.MustCompile(`^ *([a-z_]+)(=|!=|=~)"([^"]*)" *$`)
	grouping = regexp.MustCompile(`\b(sum|max) by \(([a-z_, ]+)\)`)
	word     = regexp.MustCompile(`[a-zA-Z_$][a-zA-Z0-9_]*`)
	legend   = regexp.MustCompile(`\{\{(.*?)\}\}`)

	scrapeLabels = []string{"job", "instance"} // which a Prometheus adds
	variables    = []string{"$job", "$policy"} // of the dashboard
	words        = []string{"sum", "max", "rate", "vector", "histogram_quantile", "or"}
)

// check returns the metrics that the target uses, and its mistakes.
func (e exposed) check(q target) (metrics []string, err error) {
	c := &query{there: e}
	rest := window.ReplaceAllStringFunc(q.Expr, c.window)
	rest = selector.ReplaceAllStringFunc(rest, c.selector)
	rest = grouping.ReplaceAllStringFunc(rest, c.grouping)
	for _, w := range word.FindAllString(rest, -1) {
		if e.labels[w] != nil {
			c.metrics = append(c.metrics, w)
		} else if !slices.Contains(words, w) {
			c.fail("%s is no metric that is there, and no function that is used here", w)
		}
	}

	if len(c.metrics) == 0 {
		c.fail("there is no metric in it")
	}

	for _, name := range c.groups {
		for _, m := range c.metrics {
			if e.labels[m][name] == nil && !slices.Contains(scrapeLabels, name) {
				c.fail("%s has no label %s to group by", m, name)
			}
		}
	}

	for _, l := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
		if !slices.Contains(c.groups, l[1]) {
			c.fail("the legend names %s, which it does not group by", l[1])
		}
	}
	c.brackets(q.Expr)
	return c.metrics, errors.Join(c.errs...)
}

// fail records a mistake, and returns a replacement.
func (c *query) fail(format string, args ...any) string {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
	return " "
}

func (c *query) window(s string) string {
	if s != "[$__rate_interval]" {
		return c.fail("window %s; want [$__rate_interval]", s)
	}
	return " "
}

func (c *query) selector(s string) string {
	parts := selector.FindStringSubmatch(s)
	metric, labels := parts[1], c.there.labels[parts[1]]
	if labels == nil {
		return c.fail("there is no metric %s", metric)
	}

	c.metrics = append(c.metrics, metric)
	for m := range strings.SplitSeq(parts[2], ",") {
		is := matcher.FindStringSubmatch(m)
		if is == nil {
			return c.fail("{%s}; want label=\"value\"", m)
		}

		label, values := is[1], labels[is[1]]
		variable := is[2] == "=~" && slices.Contains(variables, is[3])
		switch {
		case values == nil && !slices.Contains(scrapeLabels, label):
			c.fail("%s has no label %s", metric, label)
		case !variable && !slices.Contains(values, is[3]):
			c.fail("%s of %s is never %q", label, metric, is[3])
		}
	}
	return " "
}

func (c *query) grouping(s string) string {
	for name := range strings.SplitSeq(grouping.FindStringSubmatch(s)[2], ",") {
		c.groups = append(c.groups, strings.TrimSpace(name))
	}
	return " "
}

func (c *query) brackets(s string) {
	var open []rune
	for _, r := range s {
		switch i := strings.IndexRune(")]}", r); {
		case strings.ContainsRune("([{", r):
			open = append(open, rune(")]}"[strings.IndexRune("([{", r)]))
		case i < 0:
		case len(open) == 0 || open[len(open)-1] != r:
			c.fail("%c closes what is not open", r)
			return
		default:
			open = open[:len(open)-1]
		}
	}

	if len(open) > 0 {
		c.fail("%d brackets are left open", len(open))
	}
}

// check finds mistakes.
func TestCheck(t *testing.T) {
	there := exposed{labels: map[string]map[string][]string{"good_total": {"kind": {"a", "b"}}}}
	for _, good := range []string{
		`sum(rate(good_total{job=~"$job", kind="a"}[$__rate_interval]))`,
		`sum by (kind, job) (good_total{kind!="b"}) / 2.5 or vector(0) > 0`,
	} {
		if _, err := there.check(target{Expr: good}); err != nil {
			t.Errorf("%s: got %v; want no error", good, err)
		}
	}

	for _, test := range []struct{ expr, legend, want string }{
		{`sum(bad_total)`, "", "bad_total"},
		{`summ(good_total)`, "", "summ"},
		{`sum(good_total{knd="a"})`, "", "knd"},
		{`sum(good_total{kind="c"})`, "", `"c"`},
		{`sum(good_total{kind=a})`, "", "{"},
		{`sum by (knd) (good_total)`, "", "knd"},
		{`sum(good_total`, "", "open"},
		{`sum(good_total))`, "", "not open"},
		{`sum(rate(good_total[$__rate_interval)]`, "", "not open"},
		{`sum(rate(good_total[5m]))`, "", "[5m]"},
		{`sum by (kind) (good_total{kind=~"$k"})`, "", `"$k"`},
		{`sum(good_total)`, "{{kind}}", "kind"},
		{`1 + 2`, "", "no metric"},
	} {
		_, err := there.check(target{Expr: test.expr, LegendFormat: test.legend})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v; want one about %s", test.expr, err, test.want)
		}
	}
}
