package policyfile

import (
	"errors"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// reader turns a file into policies and collects its errors.
type reader struct {
	funcs       Funcs
	diagnostics diagnostics
}

// errorf adds an error at the node.
func (r *reader) errorf(n ast.Node, format string, args ...any) {
	r.diagnostics.addf(nodePosition(n), format, args...)
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
	found := r.eachField(top, func(name string, key, value ast.Node) {
		if name != "policies" {
			r.errorf(key, "field %s is unknown; want %s", quoted(name), oneOf([]string{"policies"}, name))
			return
		}
		list, ok := value.(*ast.SequenceNode)
		switch {
		case value == nil:
		case isEmpty(value), ok && len(list.Values) == 0:
			r.errorf(key, "there are no policies; want at least one")
		case !ok:
			r.errorf(value, "policies is %s; want a list of policies", describe(value))
		default:
			entries = r.entries(list)
		}
	})
	if _, ok := found["policies"]; !ok && !r.diagnostics.has(nodePosition(root)) {
		r.errorf(root, "there are no policies; want %s", want)
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

// check validates the policies with [middleware.New], and adds positions to its errors.
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
			continue // reported already, in the words of the file
		}
		if !placed {
			at = e.at
		}
		r.diagnostics.addf(at, "%s %v", fieldInFile(m.Field), m.Err)
	}
	return policies
}

// fieldInFile returns the file's name of a field of [middleware.Policy].
func fieldInFile(field string) string {
	if field, _, _ = strings.Cut(field, "["); field == "Routes" {
		return "route"
	}
	return strings.ToLower(wordEnd.ReplaceAllString(field, "${1}_$2"))
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)
