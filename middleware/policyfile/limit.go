package policyfile

import (
	"cmp"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-e377111c/ratelimit/gcra"
)

func (e *entry) readLimit(n ast.Node) {
	e.limit, _ = e.parseLimit(n, "limit")
	if e.limit == gcra.Unlimited() {
		e.errorf(n, "limit is none, which is for plans and overrides; want %s", limitForm)
		e.limit = gcra.Limit{}
	}
	e.positions["Limit"] = nodePosition(n)
}

// parseLimit reads a limit. In errors what is its name.
func (e *entry) parseLimit(n ast.Node, what string) (gcra.Limit, bool) {
	s, ok := stringValue(n)
	if !ok {
		e.errorf(n, "%s is %s; want %s", what, describe(n), limitForm)
		return gcra.Limit{}, false
	}
	limit, err := gcra.ParseLimit(s)
	if err != nil {
		e.errorf(n, "%s", strings.Replace(err.Error(), "gcra: limit", what+" is", 1))
	}
	if err == nil {
		e.limits = append(e.limits, placedLimit{limit, nodePosition(n)})
	}
	return limit, err == nil
}

// placedLimit is a limit of the policy, of one of its plans or of an override.
type placedLimit struct {
	gcra.Limit
	at position
}

func (e *entry) readPlans(n ast.Node) {
	m, ok := e.asMapping(n, "plans", plansForm)
	if !ok {
		return
	}
	if e.funcs.Plan == nil {
		e.errorf(n, "this program registers no function for plans; want limit")
	}
	if len(m.Values) == 0 {
		e.errorf(n, "plans is empty; want %s", plansForm)
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

func (e *entry) readCost(n ast.Node) {
	want := costForm
	if names := slices.Sorted(maps.Keys(e.funcs.Costs)); len(names) > 0 {
		name, _ := stringValue(n)
		switch cost, registered := e.funcs.Costs[name]; {
		case registered && cost == nil:
			e.errorf(n, "cost %s is registered as nil by this program; want a function there", quoted(name))
			return
		case registered:
			e.Cost = cost
			return
		}
		want += " or " + oneOf(names, name)
	}
	var cost int64
	if number, ok := n.(*ast.IntegerNode); !ok {
		s, _ := stringValue(n)
		if _, err := strconv.ParseInt(s, 10, 64); err == nil {
			want = costForm + " without quotes"
		}
	} else if digits := number.GetToken().Value; !decimal.MatchString(digits) {
		want = costForm + " in decimal digits, the first not 0"
	} else if c, err := strconv.ParseInt(digits, 10, 64); err == nil {
		cost = c
	}
	if cost < 1 {
		e.errorf(n, "cost is %s; want %s", describe(n), want)
		return
	}
	e.Cost = func(*http.Request) int64 { return cost }
	e.positions["Cost"] = nodePosition(n)
	e.cost = cost
}

// decimal excludes 010, which is 8 in YAML.
var decimal = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// combine sets what depends on several fields.
func (e *entry) combine() {
	e.Limit = e.limit
	if len(e.plans) > 0 {
		e.limitByPlan()
	}
	if e.Limit == (gcra.Limit{}) {
		e.Limit = gcra.PerSecond(1) // any valid limit; the error is reported already
		return
	}
	most := max(e.limit.Capacity(), e.largestOverride)
	for _, limit := range e.plans {
		most = max(most, limit.Capacity())
	}
	if e.cost > most {
		e.diagnostics.addf(e.positions["Cost"], "cost is %d and the limit allows at most %d at once; no request could ever pass", e.cost, most)
	}
	e.checkDebt()
}

// limitByPlan sets LimitFor. Requests with any other plan get the policy's limit, or
// the slowest plan, and so do all requests while LimitFor fails: Limit holds then.
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

// slowest returns the limit with the lowest rate, and of equal rates the one with
// the smallest burst.
func slowest(plans map[string]gcra.Limit) gcra.Limit {
	return slices.MinFunc(slices.Collect(maps.Values(plans)), func(a, b gcra.Limit) int {
		return cmp.Or(
			cmp.Compare(a.Rate(), b.Rate()),
			cmp.Compare(a.Capacity(), b.Capacity()))
	})
}
