package policyfile

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// entry is a policy of the file. The fields of its Policy are valid where the file has mistakes, so
// that [middleware.New] checks all others.
type entry struct {
	Outline
	funcs  Funcs
	value  value
	found  map[string]value        // its fields, and "routes[0]" and so on
	limits map[position]gcra.Limit // all that are valid, in plans and overrides too
	cost   int64                   // 0 unless the file has a number
}

const limitForm = "a limit such as 100/minute"

var failureModes = map[string]middleware.FailureMode{
	"local":  middleware.FailLocal,
	"open":   middleware.FailOpen,
	"closed": middleware.FailClosed,
}

// readLimiters reads the whole file.
func readLimiters(file value, funcs Funcs, limiters []string) (entries []*entry) {
	names := map[string]position{} // of policies
	read := func(v value, limiter string) {
		var of []*entry
		for _, v := range v.list("the policy", "its fields, such as {name: client, key: client, limit: 100/minute}") {
			if e := readPolicy(v, funcs); e != nil {
				e.Limiter = limiter
				of = append(of, e)
			}
		}
		check(file.mistakes, of, names)
		entries = append(entries, of...)
	}

	one := field{"policies", "a list of policies", true, func(v value) { read(v, "") }}
	const wantLimiters = "limiters and their policies, such as {api: [{name: client, key: client, limit: 100/minute}]}"
	several := field{"limiters", wantLimiters, true, func(v value) {
		found := map[string]bool{}
		for _, limiter := range v.pairs() {
			name := limiter.name
			found[name] = true
			if limiters != nil && !slices.Contains(limiters, name) {
				v.addf(limiter.key, "limiter is %s; want %s", quoted(name), oneOf(limiters))
			}
			limiter.name, limiter.want = "limiter "+quoted(name), "a list of policies"
			read(limiter, name)
		}
		for _, name := range limiters {
			if !found[name] {
				v.errorf("has no %s; want its policies", name)
			}
		}
	}}

	// Without names the file decides.
	isSeveral := limiters != nil && !slices.Equal(limiters, []string{""})
	if root, ok := file.node.(*ast.MappingNode); limiters == nil && ok {
		isSeveral = slices.ContainsFunc(root.Values, func(pair *ast.MappingValueNode) bool {
			name, _ := stringValue(pair.Key)
			return name == several.name
		})
	}

	want := one
	if isSeveral {
		want = several
	}
	file.fields(map[string]value{}, want)
	return entries
}

// readPolicy reads one policy. It returns nil if it has no fields.
func readPolicy(v value, funcs Funcs) *entry {
	e := &entry{value: v, funcs: funcs, found: map[string]value{}, limits: map[position]gcra.Limit{}}
	e.Policy.Key = keyfunc.Const("") // any valid key, as long as there is none

	if !v.fields(e.found,
		field{"name", "text, in quotes if it looks like something else", true, func(v value) { e.Policy.Name, _ = v.text() }},
		field{"key", oneOf(slices.Sorted(maps.Keys(funcs.Keys))), true, e.readKey},
		field{"anonymous", "share or skip", false, func(v value) {
			e.Policy.SkipAnonymous, _ = choose(v, map[string]bool{"share": false, "skip": true})
		}},
		field{"limit", limitForm, false, e.readLimit},
		field{"plans", "plans and their limits, such as {free: 60/minute, pro: 600/minute}", false, e.readPlans},
		field{"overrides", `a list such as [{limit: 1000/minute, subjects: ["sub:alice"]}]`, false, e.readOverrides},
		field{"routes", `a list of patterns such as ["POST /login"]`, false, e.readRoutes},
		field{"cost", "a whole number from 1 in decimal digits without quotes", false, e.readCost},
		field{"shadow", "true or false without quotes", false, e.readShadow},
		field{"max_delay", "a duration such as 500ms", false, e.readMaxDelay},
		field{"max_debt", "a whole number from 0 in decimal digits without quotes", false, func(v value) { e.Policy.MaxDebt, _ = v.integer(0) }},
		field{"on_failure", "local, open or closed", false, func(v value) { e.Policy.OnFailure, _ = choose(v, failureModes) }},
	) {
		return nil
	}

	if e.found["limit"].node == nil && e.found["plans"].node == nil {
		v.errorf("has no limit; want limit or plans")
	}
	if len(e.Policy.Plans) > 0 {
		e.limitByPlan()
	}

	if e.Policy.Limit == (gcra.Limit{}) {
		e.Policy.Limit = gcra.PerSecond(1) // any valid limit; the mistake is reported already
		return e
	}
	e.checkLimits()
	return e
}

func (e *entry) readKey(v value) {
	items := []value{v}
	if _, ok := v.node.(*ast.SequenceNode); ok {
		items = v.list("key", v.want)
	}

	var keys []keyfunc.Func
	seen := map[string]position{}
	for _, v := range items {
		// First panics on a nil function, which must not end a server that reloads.
		key, ok := e.funcs.key(v)
		name, _ := stringValue(v.node)
		switch {
		case !ok:
		case key == nil:
			v.errorf("is %s, registered as nil by this program; want a function there", quoted(name))
		case v.once(seen, name, v.at):
			keys = append(keys, key)
			e.Keys = append(e.Keys, name)
		}
	}
	if len(keys) > 0 {
		e.Policy.Key = keyfunc.First(keys...)
	}
}

func (e *entry) readRoutes(v value) {
	for i, v := range v.list("route", v.want) {
		route, _ := v.text()
		e.Policy.Routes = append(e.Policy.Routes, route)
		e.found[fmt.Sprintf("routes[%d]", i)] = v
	}
}

func (e *entry) readCost(v value) {
	name, isText := stringValue(v.node)
	if cost, ok := e.funcs.cost(name); ok && isText {
		e.Cost = name
		if cost == nil {
			v.errorf("is %s, registered as nil by this program; want a function there", quoted(name))
		}
		e.Policy.Cost = cost
		return
	}

	// Neither a number nor a name: the mistake lists both.
	if names := slices.Sorted(maps.Keys(e.funcs.Costs)); len(names) > 0 {
		v.want += ", or " + oneOf(names)
	}
	if cost, ok := v.integer(1); ok {
		e.cost, e.Cost = cost, strconv.FormatInt(cost, 10)
		e.Policy.Cost = func(*http.Request) int64 { return cost }
	}
}

func (e *entry) readShadow(v value) {
	if b, ok := v.node.(*ast.BoolNode); ok {
		e.Policy.Shadow = b.Value
		return
	}
	v.reject()
}

func (e *entry) readMaxDelay(v value) {
	text, _ := stringValue(v.node)
	delay, err := time.ParseDuration(text)
	if err != nil {
		v.reject()
	}
	e.Policy.MaxDelay = delay
}

func (e *entry) readLimit(v value) {
	if limit := e.parseLimit(v); limit != gcra.Unlimited() {
		e.Limit, e.Policy.Limit = limit, limit
		return
	}
	v.reject() // none is for plans and overrides
}

// parseLimit returns the zero Limit if it reports a mistake.
func (e *entry) parseLimit(v value) gcra.Limit {
	text, _ := stringValue(v.node)
	limit, err := gcra.ParseLimit(text)
	switch {
	case err == nil:
		e.limits[v.at] = limit
	case strings.ContainsAny(text, "0123456789"):
		v.errorf("is %s: %v", quoted(text), errors.Unwrap(err))
	default:
		v.reject()
	}
	return limit
}

func (e *entry) readPlans(v value) {
	if e.funcs.Plan == nil {
		v.addf(v.at, "this program registers no function for plans; want limit")
	}
	e.Policy.Plans = map[string]gcra.Limit{}
	for _, plan := range v.pairs() {
		name := plan.name
		plan.name, plan.want = "plan "+quoted(name), limitForm+", or none"
		if n := e.funcs.names; n != nil && n.Plans != nil && !slices.Contains(n.Plans, name) {
			v.addf(plan.key, "plan is %s; want %s", quoted(name), oneOf(n.Plans))
		}
		if limit := e.parseLimit(plan); limit != (gcra.Limit{}) {
			e.Policy.Plans[name] = limit
		}
	}
}

// limitByPlan sets LimitFor. Requests with any other plan get the policy's limit, or
// the slowest plan (of equal rates the one with the smallest burst), and so do all requests
// while LimitFor fails: Limit holds then. Where no plan has a limit, it is Unlimited, which New rejects.
func (e *entry) limitByPlan() {
	if e.Limit == (gcra.Limit{}) {
		e.Policy.Limit = append(e.Policy.Limits(), gcra.Unlimited())[0]
	}
	plans, plan, other := e.Policy.Plans, e.funcs.Plan, e.Policy.Limit
	e.Policy.LimitFor = func(r *http.Request) gcra.Limit {
		if limit, ok := plans[plan(r)]; ok {
			return limit
		}
		return other
	}
}

// checkLimits reports a cost that no limit allows, and limits of plans and overrides without
// room for max_debt, on which requests would fail: [middleware.New] checks only the policy's
// limit.
func (e *entry) checkLimits() {
	var most int64
	for at, l := range e.limits {
		if l == gcra.Unlimited() {
			continue
		}
		most = max(most, l.Capacity())
		if e.Policy.MaxDebt > 1e14 || l == e.Policy.Limit {
			continue // middleware.New reports it
		}

		indebted := l.WithBurst(l.Capacity() + e.Policy.MaxDebt)
		if l.IsQuota() {
			indebted = gcra.Quota(l.Count+e.Policy.MaxDebt, l.Calendar())
		}
		if err := indebted.Validate(); err != nil {
			e.value.addf(at, "max_debt is %d, which makes %v of %v: %v", e.Policy.MaxDebt, indebted, l, err)
		}
	}

	if e.cost > most {
		e.found["cost"].errorf("is %d and the limit allows at most %d at once; no request could ever pass", e.cost, most)
	}
}

// check validates the policies of a limiter with [middleware.New], and adds positions to its errors.
// The names are of all limiters.
func check(ms *mistakes, entries []*entry, names map[string]position) {
	var policies []middleware.Policy
	for _, e := range entries {
		policies = append(policies, e.Policy)
		if e.Policy.Name != "" {
			ms.once(names, e.Policy.Name, e.found["name"].at)
		}
	}

	if len(policies) == 0 {
		return
	}

	_, err := middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)
	if err == nil {
		return
	}

	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var m *middleware.FieldError
		if !errors.As(err, &m) {
			ms.addf(fileStart, "%v", err)
			continue
		}

		e := entries[m.Index]
		field := strings.Replace(strings.ToLower(m.Field), "max", "max_", 1) // MaxDelay is max_delay
		v, ok := e.found[field]
		if !ok {
			v = value{mistakes: ms, at: e.value.at, name: field}
		}
		if !ms.has(v.at) { // otherwise it is reported already, in the words of the file
			v.errorf("%v", m.Err)
		}
	}
}
