package replay

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// writePolicies writes the file of policies with the suggested limits in place of its own.
// All else stays, comments too, and the limits of overrides.
func (r *report) writePolicies(from, to string, f *funcs) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}

	file, err := yamlparser.ParseBytes(data, 0)
	if err != nil {
		return err
	}

	lines := strings.Split(string(data), "\n")
	limits := limitsIn(file)
	slices.SortFunc(limits, func(a, b placedLimit) int { // the last first, so that places stay
		return cmp.Or(cmp.Compare(b.at.Position.Line, a.at.Position.Line), cmp.Compare(b.at.Position.Column, a.at.Position.Column))
	})

	for _, l := range limits {
		suggested, ok := r.suggestionFor(l.policy, l.at.Value)
		if !ok {
			continue
		}

		line := &lines[l.at.Position.Line-1]
		start := len(string([]rune(*line)[:l.at.Position.Column-1]))
		before, after, found := strings.Cut((*line)[start:], l.at.Value)
		if !found {
			return fmt.Errorf("%s:%d: the limit %s is in several lines; want it in one", from, l.at.Position.Line, l.at.Value)
		}
		*line = (*line)[:start] + before + suggested + after
	}

	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("--write: %w; want a new file", err)
	}

	_, err = out.WriteString(strings.Join(lines, "\n"))
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}

	_, err = newPlayer(to, f)
	return err
}

// suggestionFor returns the suggested limit in place of one of a policy, at its rate if that
// is possible.
func (r *report) suggestionFor(policy, limit string) (string, bool) {
	t, parsed := r.byName[policy], gcra.Limit{}
	if err := parsed.UnmarshalText([]byte(limit)); err != nil || t == nil {
		return "", false
	}
	for _, m := range t.meters {
		if m.limit != parsed || m.count == 0 {
			continue
		}
		if list := m.summarize(r.share).suggested.list(); len(list) > 0 {
			return list[0].String(), true
		}
	}
	return "", false
}

// placedLimit is a limit of a policy, and where it is.
type placedLimit struct {
	policy string
	at     *token.Token
}

// limitsIn returns the limits of all policies and plans of a valid file.
func limitsIn(file *ast.File) (limits []placedLimit) {
	for _, doc := range file.Docs {
		root, _ := doc.Body.(*ast.MappingNode)
		if root == nil {
			continue
		}

		lists := []ast.Node{field(root, "policies")}
		if limiters, ok := field(root, "limiters").(*ast.MappingNode); ok {
			for _, limiter := range limiters.Values {
				lists = append(lists, limiter.Value)
			}
		}
		for _, list := range lists {
			if list, ok := list.(*ast.SequenceNode); ok {
				limits = append(limits, limitsOf(list)...)
			}
		}
	}
	return limits
}

// limitsOf returns the limits of a list of policies and their plans.
func limitsOf(list *ast.SequenceNode) (limits []placedLimit) {
	for _, item := range list.Values {
		policy, _ := item.(*ast.MappingNode)
		if policy == nil {
			continue
		}

		name := field(policy, "name").GetToken().Value
		if limit := field(policy, "limit"); limit != nil {
			limits = append(limits, placedLimit{name, limit.GetToken()})
		}
		if plans, ok := field(policy, "plans").(*ast.MappingNode); ok {
			for _, plan := range plans.Values {
				limits = append(limits, placedLimit{name, plan.Value.GetToken()})
			}
		}
	}
	return limits
}

func field(m *ast.MappingNode, name string) ast.Node {
	for _, pair := range m.Values {
		if pair.Key.GetToken().Value == name {
			return pair.Value
		}
	}
	return nil
}
