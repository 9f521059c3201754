package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// funcs are the functions that the policies' program registers, replaced by what a log has.
type funcs struct {
	keys   map[string]string // name to client, user or route
	costs  map[string]int
	plan   string // of requests whose line has none
	routes routes
}

var builtInKeys = []string{"client", "user", "route"}

// addKey adds a key, such as "tenant=user".
func (f *funcs) addKey(text string) error {
	name, key, ok := strings.Cut(text, "=")
	if !ok || name == "" || !slices.Contains(builtInKeys, key) {
		return errors.New("want a name and client, user or route, such as tenant=user")
	}
	if _, taken := f.keys[name]; taken {
		return fmt.Errorf("%s is repeated; want each name once", name)
	}
	if f.keys == nil {
		f.keys = map[string]string{}
	}
	f.keys[name] = key
	return nil
}

// addCost adds a cost, such as "rows=10".
func (f *funcs) addCost(text string) error {
	name, number, ok := strings.Cut(text, "=")
	cost, err := strconv.Atoi(number)
	if !ok || name == "" || err != nil || cost < 1 {
		return errors.New("want a name and a whole number from 1, such as rows=10")
	}
	if _, taken := f.costs[name]; taken {
		return fmt.Errorf("%s is repeated; want each name once", name)
	}
	if f.costs == nil {
		f.costs = map[string]int{}
	}
	f.costs[name] = cost
	return nil
}

// load reads the policies for the player, of all limiters, and the plans that they list.
func (f *funcs) load(file string, p *player) (list []middleware.Policy, err error) {
	all, err := policyfile.LoadAll(file, f.policyFuncs(p))
	if err != nil {
		return nil, withHint(err)
	}
	p.limiters = map[string]string{}
	for _, limiter := range slices.Sorted(maps.Keys(all)) {
		for _, policy := range all[limiter] {
			if limiter != "" {
				p.limiters[policy.Name] = limiter
			}
		}
		list = append(list, all[limiter]...)
	}

	if p.plans, err = plansIn(file); err != nil {
		return nil, err
	}

	names := slices.Sorted(maps.Keys(p.plans))
	switch {
	case f.plan == "" || p.plans[f.plan]:
		return list, nil
	case len(names) == 0:
		return nil, fmt.Errorf("--plan is %q, and no policy has plans; want none", f.plan)
	default:
		return nil, fmt.Errorf("--plan is %q; want one that a policy has: %s", f.plan, strings.Join(names, ", "))
	}
}

// withHint adds the flags that another program's policies may need.
func withHint(err error) error {
	for _, hint := range []struct{ message, flag string }{
		{": key is ", "--key tenant=user maps a key that your program registers to one of replay's"},
		{`: cost is "`, "--cost rows=10 sets a number for a cost that your program registers"},
	} {
		if strings.Contains(err.Error(), hint.message) {
			err = fmt.Errorf("%w\n%s", err, hint.flag)
		}
	}
	return err
}

// plansIn returns the plans in a valid file.
func plansIn(name string) (map[string]bool, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}

	outlines, err := policyfile.Describe(name, data, policyfile.Names{})
	if err != nil {
		return nil, err
	}

	plans := map[string]bool{}
	for _, o := range outlines {
		for plan := range o.Policy.Plans {
			plans[plan] = true
		}
	}
	return plans, nil
}

// policyFuncs returns the functions for the player's policies.
func (f *funcs) policyFuncs(p *player) policyfile.Funcs {
	keys := map[string]keyfunc.Func{
		"client": func(r *http.Request) (string, error) {
			key, err := keyfunc.RemoteAddr(r)
			if key == "" {
				p.notAddresses.count(p.requests, p.entry.client)
			}
			return key, err
		},
		"user":  keyfunc.Subject(func(ctx context.Context) string { return entryIn(ctx).user }),
		"route": f.routes.key,
	}

	v := policyfile.Funcs{
		Keys:  maps.Clone(keys),
		Costs: map[string]func(*http.Request) int64{},
		Plan: func(*http.Request) string {
			plan := p.entry.plan
			switch {
			case plan == "" && f.plan != "":
				return f.plan
			case plan == "":
				p.withoutPlan.count(p.requests, "")
			case !p.plans[plan]:
				p.unlistedPlans.count(p.requests, plan)
			}
			return plan
		},
	}

	for name, key := range f.keys {
		v.Keys[name] = keys[key]
	}
	for name, cost := range f.costs {
		v.Costs[name] = func(*http.Request) int64 { return int64(cost) }
	}
	return v
}

// unknowns counts requests about which something is unknown.
type unknowns struct {
	n       int64
	example string // the first one's
	last    int64  // the last request counted
}

// count counts a request once, however many policies call it.
func (d *unknowns) count(request int64, example string) {
	if d.n > 0 && d.last == request {
		return
	}
	if d.n == 0 {
		d.example = clip(example)
	}
	d.n++
	d.last = request
}
