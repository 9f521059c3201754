package policyfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// reader makes policies of a file and collects its mistakes.
type reader struct {
	funcs       Funcs
	diagnostics diagnostics
}

// entry is a policy of the file.
type entry struct {
	*reader
	middleware.Policy
	at        position            // where it begins
	positions map[string]position // where the fields of Policy stand, by their names there: "Limit", "Routes[0]"

	limit gcra.Limit
	plans map[string]gcra.Limit
	cost  int64 // 0 unless it is a number
}

// fields are what a policy has, in the order in which messages list them.
var fields = []struct {
	name string
	want string
	read func(e *entry, n ast.Node)
}{
	{"name", "text", (*entry).readName},
	{"key", "a registered name or a list of them", (*entry).readKey},
	{"limit", limitForm, (*entry).readLimit},
	{"plans", plansForm, (*entry).readPlans},
	{"routes", routesForm, (*entry).readRoutes},
	{"cost", costForm, (*entry).readCost},
	{"shadow", "true or false", (*entry).readShadow},
	{"max_delay", delayForm, (*entry).readMaxDelay},
	{"on_failure", onFailureForm, (*entry).readOnFailure},
}

const (
	limitForm     = "a limit such as 100/minute"
	plansForm     = "plans and their limits, such as {free: 60/minute, pro: 600/minute}"
	routesForm    = `a list of patterns such as ["POST /login"]`
	costForm      = "a whole number from 1"
	delayForm     = "a duration such as 500ms"
	onFailureForm = "local, open or closed"
)

// elsewhere is where to write what others have as fields, and this file has not.
var hints = map[string]string{
	"burst": "it in the limit, as in limit: 5/minute burst 10",
	"delay": "max_delay",
}

// policies reads the whole file.
func (r *reader) policies(data []byte) []middleware.Policy {
	const want = "policies: and a list of them"
	root := r.parse(data)
	if root == nil {
		if len(r.diagnostics) == 0 {
			r.diagnostics.addf(fileStart, "the file is empty; want %s", want)
		}
		return nil
	}
	root, ok := r.literal(root)
	if !ok {
		return nil
	}
	top, ok := r.asMapping(root, "the file", want)
	if !ok {
		return nil
	}
	var entries []*entry
	there := r.eachField(top, func(name string, key, value ast.Node) {
		if name != "policies" {
			r.diagnostics.addf(nodePosition(key), "field %s is unknown; want %s", quoted(name), oneOf([]string{"policies"}, name))
			return
		}
		list, ok := value.(*ast.SequenceNode)
		switch {
		case value == nil:
		case isEmpty(value), ok && len(list.Values) == 0:
			r.diagnostics.addf(nodePosition(key), "there are no policies; want at least one")
		case !ok:
			r.diagnostics.addf(nodePosition(value), "policies is %s; want a list of policies", describe(value))
		default:
			entries = r.entries(list)
		}
	})
	if _, ok := there["policies"]; !ok && !r.diagnostics.has(nodePosition(root)) {
		r.diagnostics.addf(nodePosition(root), "there are no policies; want %s", want)
	}
	return r.check(entries)
}

func (r *reader) entries(list *ast.SequenceNode) (entries []*entry) {
	names := map[string]position{}
	for _, item := range list.Values {
		item, ok := r.literal(item)
		if !ok {
			continue
		}
		m, ok := r.asMapping(item, "a policy", "its fields, such as {name: client, key: client, limit: 100/minute}")
		if !ok {
			continue
		}
		e := r.entry(m)
		entries = append(entries, e)
		if e.Name == "" {
			continue
		}
		at := e.positions["Name"]
		if before, taken := names[e.Name]; taken {
			r.diagnostics.addf(at, "name %s is taken by the policy in line %d; want unique names", quoted(e.Name), before.line)
		} else {
			names[e.Name] = at
		}
	}
	return entries
}

// entry reads one policy. What it cannot read is replaced by something that is
// right, so that what follows is looked at, too.
func (r *reader) entry(m *ast.MappingNode) *entry {
	e := &entry{reader: r, at: nodePosition(m), positions: map[string]position{}}
	e.Key = keyfunc.Const("")
	there := r.eachField(m, func(name string, key, value ast.Node) {
		for _, f := range fields {
			if f.name != name {
				continue
			}
			switch {
			case value == nil:
			case isEmpty(value) && (name == "name" || name == "key"):
				r.diagnostics.addf(nodePosition(key), "%s has no value; want %s", name, f.want)
			case isEmpty(value):
				r.diagnostics.addf(nodePosition(key), "%s has no value; want %s, or leave it out", name, f.want)
			default:
				f.read(e, value)
			}
			return
		}
		r.diagnostics.addf(nodePosition(key), "field %s is unknown; want %s", quoted(name), wantField(name))
	})
	if _, ok := there["name"]; !ok {
		r.diagnostics.addf(e.at, "the policy has no name; want one such as client, as the store keeps its state under it")
	}
	if _, ok := there["key"]; !ok {
		r.diagnostics.addf(e.at, "the policy has no key; want %s", e.wantKey(""))
	}
	_, hasLimit := there["limit"]
	_, hasPlans := there["plans"]
	if !hasLimit && !hasPlans {
		r.diagnostics.addf(e.at, "the policy has no limit; want limit or plans")
	}
	e.combine()
	return e
}

func wantField(written string) string {
	if where, ok := hints[written]; ok {
		return where
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return oneOf(names, written)
}

func (e *entry) readName(n ast.Node) {
	s, ok := stringValue(n)
	e.Name, e.positions["Name"] = s, nodePosition(n)
	if !ok || s == "" {
		e.diagnostics.addf(nodePosition(n), "name is %s; want text, in quotes if it looks like something else", describe(n))
	}
}

func (e *entry) readKey(n ast.Node) {
	names := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		names = list.Values
		if len(names) == 0 {
			e.diagnostics.addf(nodePosition(n), "key is an empty list; want %s", e.wantKey(""))
		}
	}
	var keys []keyfunc.Func
	seen := map[string]bool{}
	for _, n := range names {
		n, ok := e.literal(n)
		if !ok {
			continue
		}
		name, _ := stringValue(n)
		key, registered := e.funcs.Keys[name]
		switch {
		case registered && key == nil:
			e.diagnostics.addf(nodePosition(n), "key %s is registered as nil by this program; want a function there", quoted(name))
		case key == nil:
			e.diagnostics.addf(nodePosition(n), "key is %s; want %s", describe(n), e.wantKey(name))
		case seen[name]:
			e.diagnostics.addf(nodePosition(n), "key %s is there twice; want it once, as the first that knows somebody counts", quoted(name))
		default:
			keys = append(keys, key)
		}
		seen[name] = true
	}
	if len(keys) == 1 {
		e.Key = keys[0]
	} else if len(keys) > 1 {
		e.Key = keyfunc.First(keys...)
	}
}

func (e *entry) wantKey(written string) string {
	if len(e.funcs.Keys) == 0 {
		return "a registered name, of which this program has none"
	}
	return oneOf(slices.Sorted(maps.Keys(e.funcs.Keys)), written)
}

func (e *entry) readLimit(n ast.Node) {
	e.limit, _ = e.parseLimit(n, "limit")
	e.positions["Limit"] = nodePosition(n)
}

// parseLimit reads a limit, or says what is wrong with the one that is called
// what.
func (e *entry) parseLimit(n ast.Node, what string) (gcra.Limit, bool) {
	s, ok := stringValue(n)
	if !ok {
		e.diagnostics.addf(nodePosition(n), "%s is %s; want %s", what, describe(n), limitForm)
		return gcra.Limit{}, false
	}
	limit, err := gcra.ParseLimit(s)
	if err != nil {
		e.diagnostics.addf(nodePosition(n), "%s", strings.Replace(err.Error(), "gcra: limit", what+" is", 1))
	}
	return limit, err == nil
}

func (e *entry) readPlans(n ast.Node) {
	m, ok := e.asMapping(n, "plans", plansForm)
	if !ok {
		return
	}
	if e.funcs.Plan == nil {
		e.diagnostics.addf(nodePosition(n), "plans are not known to this program; want limit")
	}
	if len(m.Values) == 0 {
		e.diagnostics.addf(nodePosition(n), "plans is empty; want %s", plansForm)
	}
	e.plans = map[string]gcra.Limit{}
	e.eachField(m, func(plan string, _, value ast.Node) {
		if value == nil {
			return
		}
		if limit, ok := e.parseLimit(value, "plan "+quoted(plan)); ok {
			e.plans[plan] = limit
		}
	})
}

func (e *entry) readRoutes(n ast.Node) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		e.diagnostics.addf(nodePosition(n), "routes is %s; want %s", describe(n), routesForm)
		return
	}
	if len(list.Values) == 0 {
		e.diagnostics.addf(nodePosition(n), "routes is an empty list; want %s, or leave it out for every request", routesForm)
	}
	for _, n := range list.Values {
		n, ok := e.literal(n)
		if !ok {
			continue
		}
		route, ok := stringValue(n)
		if !ok {
			e.diagnostics.addf(nodePosition(n), "routes has %s; want %s", describe(n), routesForm)
			continue
		}
		e.positions[fmt.Sprintf("Routes[%d]", len(e.Routes))] = nodePosition(n)
		e.Routes = append(e.Routes, route)
	}
}

func (e *entry) readCost(n ast.Node) {
	want := costForm
	if names := slices.Sorted(maps.Keys(e.funcs.Costs)); len(names) > 0 {
		name, _ := stringValue(n)
		switch cost, registered := e.funcs.Costs[name]; {
		case registered && cost == nil:
			e.diagnostics.addf(nodePosition(n), "cost %s is registered as nil by this program; want a function there", quoted(name))
			return
		case registered:
			e.Cost = cost
			return
		}
		want += " or " + oneOf(names, name)
	}
	cost, ok := wholeNumber(n)
	if s, _ := stringValue(n); isNumber(s) {
		want = costForm + " without quotes"
	} else if number, is := n.(*ast.IntegerNode); is && !decimal.MatchString(number.GetToken().Value) {
		want = costForm + " in decimal digits, the first not 0"
	}
	if !ok || cost < 1 {
		e.diagnostics.addf(nodePosition(n), "cost is %s; want %s", describe(n), want)
		return
	}
	e.Cost = func(*http.Request) int { return cost }
	e.positions["Cost"] = nodePosition(n)
	e.cost = int64(cost)
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// decimal is how a number is written: YAML takes 010 for 8.
var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// wholeNumber is the number that the node is.
func wholeNumber(n ast.Node) (int, bool) {
	number, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	written := number.GetToken().Value
	v, err := strconv.Atoi(written)
	return v, err == nil && decimal.MatchString(written)
}

func (e *entry) readShadow(n ast.Node) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		want := "true or false"
		if s, _ := stringValue(n); s == "true" || s == "false" {
			want += " without quotes"
		}
		e.diagnostics.addf(nodePosition(n), "shadow is %s; want %s", describe(n), want)
		return
	}
	e.Shadow = b.Value
}

func (e *entry) readMaxDelay(n ast.Node) {
	s, ok := stringValue(n)
	delay, err := time.ParseDuration(s)
	if !ok || err != nil {
		e.diagnostics.addf(nodePosition(n), "max_delay is %s; want %s", describe(n), delayForm)
		return
	}
	e.MaxDelay, e.positions["MaxDelay"] = delay, nodePosition(n)
}

var failureModes = map[string]middleware.FailureMode{
	"local":  middleware.FailLocal,
	"open":   middleware.FailOpen,
	"closed": middleware.FailClosed,
}

func (e *entry) readOnFailure(n ast.Node) {
	name, _ := stringValue(n)
	outage, ok := failureModes[name]
	if !ok {
		e.diagnostics.addf(nodePosition(n), "on_failure is %s; want %s", describe(n), oneOf([]string{"local", "open", "closed"}, name))
		return
	}
	e.OnFailure = outage
}

// finish puts together what stands in several fields.
func (e *entry) combine() {
	e.Limit = e.limit
	if len(e.plans) > 0 {
		e.limitByPlan()
	}
	if e.Limit == (gcra.Limit{}) {
		e.Limit = gcra.PerSecond(1) // a mistake has been reported
		return
	}
	most := e.limit.Capacity()
	for _, limit := range e.plans {
		most = max(most, limit.Capacity())
	}
	if e.cost > most {
		e.diagnostics.addf(e.positions["Cost"], "cost is %d, of which the limit admits %d at most; no request could ever pass", e.cost, most)
	}
}

// usePlans limits by plan. The limit beside the plans, or the slowest of them,
// is for everybody else: also for those whose plan cannot be told, as Limit is what
// holds when LimitFor fails.
func (e *entry) limitByPlan() {
	plans, plan, other := e.plans, e.funcs.Plan, e.limit
	if other == (gcra.Limit{}) {
		other = slowest(plans)
	}
	e.Limit = other
	e.LimitFor = func(r *http.Request) gcra.Limit {
		if limit, ok := plans[plan(r)]; ok {
			return limit
		}
		return other
	}
}

// slowest is the limit with the lowest sustained rate, and of two such the one
// with the smaller burst.
func slowest(plans map[string]gcra.Limit) gcra.Limit {
	return slices.MinFunc(slices.Collect(maps.Values(plans)), func(a, b gcra.Limit) int {
		return cmp.Or(
			cmp.Compare(float64(a.Count)/float64(a.Per), float64(b.Count)/float64(b.Per)),
			cmp.Compare(a.Capacity(), b.Capacity()))
	})
}

// check has the middleware look at the policies, and finds the positions of what
// it finds.
func (r *reader) check(entries []*entry) []middleware.Policy {
	if len(entries) == 0 {
		return nil
	}
	policies := make([]middleware.Policy, len(entries))
	for i, e := range entries {
		policies[i] = e.Policy
	}
	_, err := middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)
	if err == nil {
		return policies
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var m *middleware.FieldError
		if !errors.As(err, &m) {
			r.diagnostics.addf(fileStart, "%v", err)
			continue
		}
		e := entries[m.Index]
		at, placed := e.positions[m.Field]
		if placed && r.diagnostics.has(at) || m.Field == "Name" && e.Name == "" {
			continue // it has been reported in the file's own words
		}
		if !placed {
			at = e.at
		}
		r.diagnostics.addf(at, "%s %v", fieldInFile(m.Field), m.Err)
	}
	return policies
}

// fileName is what the file calls a field of [middleware.Policy].
func fieldInFile(field string) string {
	switch field, _, _ = strings.Cut(field, "["); field {
	case "Routes":
		return "route"
	case "MaxDelay":
		return "max_delay"
	}
	return strings.ToLower(field)
}
