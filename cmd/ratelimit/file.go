package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// registered are the names that the program registers. Nil means that every name is one.
type registered struct{ keys, costs, plans []string }

// policyFile is a valid file of policies.
type policyFile struct {
	policies []middleware.Policy
	fields   []fields // of each policy, as they are written
}

// fields are the fields of a policy that middleware.Policy has as functions.
type fields struct {
	Key, Cost any
	Limit     gcra.Limit // zero if there is none; then policyfile sets that of the slowest plan
	Plans     map[string]gcra.Limit
	Overrides []struct {
		Limit    gcra.Limit
		Subjects []string
	}
}

// loadPolicies reads a file as a server does. The functions that its program registers
// are replaced by some that do nothing, as no request is decided here.
func loadPolicies(name string, known registered) (f *policyFile, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}

	written := namesIn(data)
	funcs := policyfile.Funcs{
		Keys:  map[string]func(*http.Request) (string, error){},
		Costs: map[string]func(*http.Request) int64{},
		Plan:  func(*http.Request) string { return "" },
	}
	for _, key := range orAll(known.keys, written.keys) {
		funcs.Keys[key] = func(*http.Request) (string, error) { return "", nil }
	}
	for _, cost := range orAll(known.costs, written.costs) {
		funcs.Costs[cost] = func(*http.Request) int64 { return 1 }
	}

	f = &policyFile{}
	if f.policies, err = policyfile.Parse(name, data, funcs); err != nil {
		return nil, err
	}

	// The fields that policyfile makes functions of, as they are written.
	var file struct{ Policies []fields }
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.fields = file.Policies
	return f, checkPlans(name, written.plans, known.plans)
}

// file reads the file of --policies. Without one it is nil.
func (c *command) file() (f *policyFile, err error) {
	if c.policies != "" {
		f, err = loadPolicies(c.policies, registered{})
	}
	return f, err
}

func orAll(known, written []string) []string {
	if known == nil {
		return written
	}
	return known
}

// limits returns the limits that a policy may apply to a subject without an override, by
// the names of their plans; that of a limit beside plans is "".
func (f *policyFile) limits(i int) map[string]gcra.Limit {
	limits := map[string]gcra.Limit{}
	for plan, limit := range f.fields[i].Plans {
		limits[plan] = limit
	}
	if limit := f.fields[i].Limit; limit != (gcra.Limit{}) {
		limits[""] = limit
	}
	return limits
}

// limitsOf returns the limits that a policy may apply to a subject.
func (f *policyFile) limitsOf(i int, subject string) map[string]gcra.Limit {
	if o, ok := f.policies[i].OverrideOf(subject); ok {
		return map[string]gcra.Limit{"": o.Limit}
	}
	return f.limits(i)
}

func (f *policyFile) names() (all []string) {
	for _, p := range f.policies {
		all = append(all, p.Name)
	}
	return all
}

// names are the names of functions and plans that a file uses.
type names struct {
	keys, costs []string
	plans       []*token.Token
}

// namesIn finds the names in a file, also in one with mistakes.
func namesIn(data []byte) (n names) {
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return n // the server's own message says what is wrong
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			ast.Walk(&n, doc.Body)
		}
	}
	return n
}

// Visit implements [ast.Visitor].
func (n *names) Visit(node ast.Node) ast.Visitor {
	pair, ok := node.(*ast.MappingValueNode)
	if !ok {
		return n
	}

	switch pair.Key.String() {
	case "key":
		n.keys = append(n.keys, texts(pair.Value)...)
	case "cost":
		n.costs = append(n.costs, texts(pair.Value)...)
	case "plans":
		if plans, ok := pair.Value.(*ast.MappingNode); ok {
			for _, plan := range plans.Values {
				n.plans = append(n.plans, plan.Key.GetToken())
			}
		}
	}
	return n
}

// texts returns the text of a node, or those of a list.
func texts(node ast.Node) (all []string) {
	switch node := node.(type) {
	case *ast.StringNode:
		return []string{node.Value}
	case *ast.SequenceNode:
		for _, item := range node.Values {
			all = append(all, texts(item)...)
		}
	}
	return all
}

// checkPlans returns an error for each plan of the file that the program does not have. A
// server cannot tell: it asks for the plans of its requests only.
func checkPlans(file string, written []*token.Token, known []string) error {
	var found mistakes
	for _, plan := range written {
		if known != nil && !slices.Contains(known, plan.Value) {
			found = append(found, fmt.Errorf("%s:%d:%d: plan is %q; want %s", file, plan.Position.Line, plan.Position.Column, plan.Value, oneOf(known)))
		}
	}
	if found == nil {
		return nil
	}
	return found
}
