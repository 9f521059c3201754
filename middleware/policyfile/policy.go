package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// entry is a policy of the file.
type entry struct {
	*reader
	middleware.Policy
	at        position            // of the policy
	positions map[string]position // of its fields, by their names in FieldError: "Limit", "Routes[0]"

	limit  gcra.Limit
	plans  map[string]gcra.Limit
	limits []placedLimit // all that are valid, with those of overrides
	cost   int64         // 0 unless the file has a number

	largestOverride int64 // the most that an override allows at once
}

// fields are the fields of a policy, in the order in which messages list them.
var fields = []struct {
	name string
	want string
	read func(e *entry, n ast.Node)
}{
	{"name", "text", (*entry).readName},
	{"key", "a registered name or a list of them", (*entry).readKey},
	{"anonymous", anonymousForm, (*entry).readAnonymous},
	{"limit", limitForm, (*entry).readLimit},
	{"plans", plansForm, (*entry).readPlans},
	{"overrides", overridesForm, (*entry).readOverrides},
	{"routes", routesForm, (*entry).readRoutes},
	{"cost", costForm, (*entry).readCost},
	{"shadow", "true or false", (*entry).readShadow},
	{"max_delay", delayForm, (*entry).readMaxDelay},
	{"max_debt", debtForm, (*entry).readMaxDebt},
	{"on_failure", onFailureForm, (*entry).readOnFailure},
}

const (
	anonymousForm = "share or skip"
	limitForm     = "a limit such as 100/minute"
	plansForm     = "plans and their limits, such as {free: 60/minute, pro: 600/minute}"
	routesForm    = `a list of patterns such as ["POST /login"]`
	costForm      = "a whole number from 1"
	delayForm     = "a duration such as 500ms"
	debtForm      = "a whole number from 0 in decimal digits"
	onFailureForm = "local, open or closed"
)

// hints say where to write what other programs have as fields.
var hints = map[string]string{
	"burst": "it in the limit, as in limit: 5/minute burst 10",
	"debt":  "max_debt",
	"delay": "max_delay",
}

// entry reads one policy. It replaces values that have errors by valid ones, so that
// all others are checked too.
func (r *reader) entry(m *ast.MappingNode) *entry {
	e := &entry{reader: r, at: nodePosition(m), positions: map[string]position{}}
	e.Key = keyfunc.Const("")
	found := r.eachField(m, func(name string, key, value ast.Node) {
		for _, f := range fields {
			if f.name != name {
				continue
			}
			switch {
			case value == nil:
			case isEmpty(value) && (name == "name" || name == "key"):
				r.errorf(key, "%s has no value; want %s", name, f.want)
			case isEmpty(value):
				r.errorf(key, "%s has no value; want %s, or leave it out", name, f.want)
			default:
				f.read(e, value)
			}
			return
		}
		r.errorf(key, "field %s is unknown; want %s", quoted(name), wantField(name))
	})
	if _, ok := found["name"]; !ok {
		r.diagnostics.addf(e.at, "the policy has no name; want one such as client, as the store keeps its state under it")
	}
	if _, ok := found["key"]; !ok {
		r.diagnostics.addf(e.at, "the policy has no key; want %s", e.wantKey(""))
	}
	_, hasLimit := found["limit"]
	_, hasPlans := found["plans"]
	if !hasLimit && !hasPlans {
		r.diagnostics.addf(e.at, "the policy has no limit; want limit or plans")
	}
	e.combine()
	return e
}

func wantField(written string) string {
	if hint, ok := hints[written]; ok {
		return hint
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
		e.errorf(n, "name is %s; want text, in quotes if it looks like something else", describe(n))
	}
}

func (e *entry) readKey(n ast.Node) {
	names := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		names = list.Values
		if len(names) == 0 {
			e.errorf(n, "key is an empty list; want %s", e.wantKey(""))
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
			e.errorf(n, "key %s is registered as nil by this program; want a function there", quoted(name))
		case key == nil:
			e.errorf(n, "key is %s; want %s", describe(n), e.wantKey(name))
		case seen[name]:
			e.errorf(n, "key %s is repeated; want it once", quoted(name))
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

func (e *entry) readAnonymous(n ast.Node) {
	s, _ := stringValue(n)
	if s != "share" && s != "skip" {
		e.errorf(n, "anonymous is %s; want %s", describe(n), oneOf([]string{"share", "skip"}, s))
	}
	e.SkipAnonymous = s == "skip"
}

func (e *entry) wantKey(written string) string {
	if len(e.funcs.Keys) == 0 {
		return "a registered name, and this program registers none"
	}
	return oneOf(slices.Sorted(maps.Keys(e.funcs.Keys)), written)
}

func (e *entry) readRoutes(n ast.Node) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		e.errorf(n, "routes is %s; want %s", describe(n), routesForm)
		return
	}
	if len(list.Values) == 0 {
		e.errorf(n, "routes is an empty list; want %s, or leave it out for every request", routesForm)
	}
	for _, n := range list.Values {
		n, ok := e.literal(n)
		if !ok {
			continue
		}
		route, ok := stringValue(n)
		if !ok {
			e.errorf(n, "routes has %s; want %s", describe(n), routesForm)
			continue
		}
		e.positions[fmt.Sprintf("Routes[%d]", len(e.Routes))] = nodePosition(n)
		e.Routes = append(e.Routes, route)
	}
}

func (e *entry) readShadow(n ast.Node) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		want := "true or false"
		if s, _ := stringValue(n); s == "true" || s == "false" {
			want += " without quotes"
		}
		e.errorf(n, "shadow is %s; want %s", describe(n), want)
		return
	}
	e.Shadow = b.Value
}

func (e *entry) readMaxDelay(n ast.Node) {
	s, ok := stringValue(n)
	delay, err := time.ParseDuration(s)
	if !ok || err != nil {
		e.errorf(n, "max_delay is %s; want %s", describe(n), delayForm)
		return
	}
	e.MaxDelay, e.positions["MaxDelay"] = delay, nodePosition(n)
}

func (e *entry) readMaxDebt(n ast.Node) {
	digits := n.GetToken().Value
	debt, err := strconv.ParseInt(digits, 10, 64)
	if _, number := n.(*ast.IntegerNode); !number || !decimal.MatchString(digits) || err != nil {
		e.errorf(n, "max_debt is %s; want %s", describe(n), debtForm)
		return
	}
	e.MaxDebt, e.positions["MaxDebt"] = debt, nodePosition(n)
}

// checkDebt reports the limits of plans and overrides that have no room for max_debt, on
// which requests would fail. [middleware.New] checks only the policy's limit.
func (e *entry) checkDebt() {
	if _, placed := e.positions["MaxDebt"]; !placed || e.MaxDebt < 1 || e.MaxDebt > 1e14 {
		return // none, or middleware.New reports it
	}
	for _, l := range e.limits {
		indebted := l.WithBurst(l.Capacity() + e.MaxDebt)
		if l.IsQuota() {
			indebted = gcra.Quota(l.Count+e.MaxDebt, l.Calendar())
		}
		if err := indebted.Validate(); err != nil && l.Limit != gcra.Unlimited() && l.Limit != e.Limit {
			e.diagnostics.addf(l.at, "max_debt is %d, which makes %v of %v: %v", e.MaxDebt, indebted, l.Limit, err)
		}
	}
}

var failureModes = map[string]middleware.FailureMode{
	"local":  middleware.FailLocal,
	"open":   middleware.FailOpen,
	"closed": middleware.FailClosed,
}

func (e *entry) readOnFailure(n ast.Node) {
	name, _ := stringValue(n)
	mode, ok := failureModes[name]
	if !ok {
		e.errorf(n, "on_failure is %s; want %s", describe(n), oneOf([]string{"local", "open", "closed"}, name))
		return
	}
	e.OnFailure = mode
}
