package middleware

import (
	"fmt"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/routes"
)

// policies are the compiled policies of a limiter, and which of them apply to
// which route.
type policies struct {
	list    []*policy
	limiter *Limiter
	routes  routes.Table
}

// names are the names of the policies.
func (ps *policies) names() []string {
	names := make([]string, len(ps.list))
	for i, p := range ps.list {
		names[i] = p.Name
	}
	return names
}

// named returns the policy with a name, or an error with the names that there are.
func (ps *policies) named(name string) (*policy, error) {
	for _, p := range ps.list {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("policy is %.80q; want one of %s", name, strings.Join(ps.names(), ", "))
}
