package policyfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// value is a value of the file. The methods that read it report what is wrong with it.
//
// The decoder of go-yaml is no help here, strict or not: it stops at the first mistake,
// ignores fields without a value and mappings with a key that is a number, follows
// aliases, and reads 1.5 and 010 as the integers 1 and 8.
type value struct {
	*mistakes
	node ast.Node
	at   position
	key  position // of the field that has the value
	name string   // in messages
	want string   // what would be right
}

// errorf reports a mistake. The message begins with the value's name.
func (v value) errorf(format string, args ...any) {
	v.addf(v.at, "%s %s", v.name, fmt.Sprintf(format, args...))
}

// reject reports that the value is not what is wanted.
func (v value) reject() { v.errorf("is %s; want %s", describe(v.node), v.want) }

// text returns text that is not empty. Numbers and booleans are not text.
func (v value) text() (string, bool) {
	if s, ok := stringValue(v.node); ok && s != "" {
		return s, true
	}
	v.reject()
	return "", false
}

// integer returns a number of at least least. 010 is 8 in YAML, so the digits must be those
// of the number.
func (v value) integer(least int64) (int64, bool) {
	if n, ok := v.node.(*ast.IntegerNode); ok {
		digits := n.GetToken().Value
		i, err := strconv.ParseInt(digits, 10, 64)
		if err == nil && i >= least && strconv.FormatInt(i, 10) == digits {
			return i, true
		}
	}
	v.reject()
	return 0, false
}

// choose returns the option that the value names.
func choose[T any](v value, options map[string]T) (option T, ok bool) {
	name, isText := stringValue(v.node)
	if option, ok = options[name]; ok && isText {
		return option, true
	}
	v.want = oneOf(slices.Sorted(maps.Keys(options)))
	v.reject()
	return option, false
}

// list returns the values of a list that is not empty.
func (v value) list(name, want string) (items []value) {
	list, ok := v.node.(*ast.SequenceNode)
	if !ok || isEmpty(list) {
		v.reject()
		return nil
	}

	for _, n := range list.Values {
		items = append(items, value{v.mistakes, n, nodePosition(n), v.key, name, want})
	}
	return items
}

// pairs returns the values of a mapping that is not empty, named by their keys. It is nil
// for anything else.
func (v value) pairs() (values []value) {
	m, ok := v.node.(*ast.MappingNode)
	if !ok || isEmpty(m) {
		v.reject()
		return nil
	}

	values = []value{}
	seen := map[string]position{}
	for _, pair := range m.Values {
		at := nodePosition(pair.Key)
		name, ok := stringValue(pair.Key)
		if !ok {
			v.addf(at, "the name of a field is %s; want text", describe(pair.Key))
		} else if v.once(seen, name, at) {
			field := value{v.mistakes, pair.Value, nodePosition(pair.Value), at, name, ""}
			// Nothing is there to point at.
			if isEmpty(pair.Value) && pair.Value.Type() == ast.NullType {
				field.at = at
			}
			values = append(values, field)
		}
	}
	return values
}

// field is a field of a mapping.
type field struct {
	name, want string
	required   bool
	read       func(value)
}

// fields reads a mapping, and puts its values into found by their names. It returns false if it is
// no mapping, or is empty.
func (v value) fields(found map[string]value, fields ...field) bool {
	values := v.pairs()
	if values == nil {
		return false
	}

	for _, v := range values {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == v.name })
		if i < 0 {
			var names []string
			for _, f := range fields {
				names = append(names, f.name)
			}
			v.addf(v.key, "field %s is unknown; want %s", quoted(v.name), oneOf(names))
			continue
		}

		v.want = fields[i].want
		if isEmpty(v.node) && !fields[i].required {
			v.want += ", or leave it out"
		}
		found[v.name] = v
		fields[i].read(v)
	}

	// Only what is not there at all: an empty field is reported where it is.
	for _, f := range fields {
		if _, ok := found[f.name]; !ok && f.required {
			v.errorf("has no %s; want %s", f.name, f.want)
		}
	}
	return true
}

// nodePosition returns where the node begins.
func nodePosition(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return nodePosition(m.Values[0].Key)
	}
	return tokenPosition(n.GetToken())
}

func stringValue(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// isEmpty reports whether the value is left out, as in "shadow:", or has no elements.
func isEmpty(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SequenceNode:
		return len(n.Values) == 0
	case *ast.MappingNode:
		return len(n.Values) == 0
	}
	t := n.GetToken()
	return t != nil && t.Type == token.ImplicitNullType
}

// kinds are the nodes that are neither text, numbers nor booleans. Anchors, aliases and tags
// are always rejected: limits are written where they apply, and no small file expands to a
// large one.
var kinds = map[ast.NodeType]string{
	ast.AnchorType:   "an anchor (&), which is not supported",
	ast.AliasType:    "an alias (*), which is not supported",
	ast.TagType:      "a tag (!), which is not supported",
	ast.SequenceType: "a list",
	ast.MappingType:  "a mapping",
}

// describe returns the node as messages show it.
func describe(n ast.Node) string {
	if isEmpty(n) {
		return "empty"
	}
	if s, ok := stringValue(n); ok {
		return quoted(s)
	}
	return cmp.Or(kinds[n.Type()], fmt.Sprintf("%.80s", n.GetToken().Value))
}

// quoted bounds the text from the file that a message repeats.
func quoted(s string) string { return fmt.Sprintf("%.80q", s) }
