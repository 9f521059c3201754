package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// check is the command "check".
func (c *command) check() *cobra.Command {
	var known policyfile.Names
	var against string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Is this file of policies right, and what does it change?",
		Long: `Check prints the mistakes in a file of policies, each with line and column.

Without --keys, --costs or --plans every such name in the file counts as right.
With --against it says in words what changes from an older file, and which
buckets start anew.`,
		Example: `  ratelimit check policies.yaml --keys client,user --plans free,pro
  ratelimit check policies.yaml --against <(git show main:policies.yaml)`,
		Args: asUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, r := cmd.OutOrStdout(), checked{File: args[0], Mistakes: []mistake{}}
			now, err := loadPolicies(args[0], known)
			if err == nil && against != "" {
				before, err := loadPolicies(against, policyfile.Names{})
				if err != nil {
					return err
				}
				r.Changes = now.since(before)
			}

			switch r.add(err); {
			case c.json:
				printJSON(out, r)
			case err != nil:
				fmt.Fprintln(out, err)
			default:
				for _, change := range r.Changes {
					fmt.Fprintln(out, change)
				}
				fmt.Fprintf(out, "%s is right\n", r.File)
				c.printNotes(cmd, now)
			}
			if err != nil {
				return errFound
			}
			return nil
		},
	}

	flags := cmd.Flags()
	flags.StringSliceVar(&known.Keys, "keys", nil, "`names` of the keys that the program registers, such as client,user")
	flags.StringSliceVar(&known.Costs, "costs", nil, "`names` of its costs")
	flags.StringSliceVar(&known.Plans, "plans", nil, "`names` of its plans")
	flags.StringVar(&against, "against", "", "`file` to compare with")
	return c.uses(cmd, "json")
}

// checked is what is printed.
type checked struct {
	File     string    `json:"file"`
	Mistakes []mistake `json:"mistakes"`
	Changes  []string  `json:"changes,omitempty"`
}

type mistake struct {
	Line   int    `json:"line,omitempty"` // from 1; 0 if it is the file's
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"`
}

// add adds the mistakes of policyfile, which begin with file:line:column.
func (r *checked) add(err error) {
	if err == nil {
		return
	}

	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}

	for _, err := range all {
		parts := placed.FindStringSubmatch(strings.TrimPrefix(err.Error(), r.File+":"))
		line, _ := strconv.Atoi(parts[1])
		column, _ := strconv.Atoi(parts[2])
		r.Mistakes = append(r.Mistakes, mistake{line, column, parts[3]})
	}
}

var placed = regexp.MustCompile(`(?s)^(?:(\d+):(\d+):)? *(.*)$`)

// since returns in words what is different from an older file.
func (f *policyFile) since(old *policyFile) (changes []string) {
	add := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }

	for i, p := range f.policies {
		j := old.index(p.Name)
		if j < 0 {
			add("policy %s is new: its buckets are full", p.Name)
		} else {
			f.changed(add, i, old, j)
		}
	}

	for _, p := range old.policies {
		if f.index(p.Name) < 0 {
			add("policy %s is removed; if it was renamed, its buckets start anew", p.Name)
		}
	}

	if changes == nil {
		add("nothing changes")
	}
	return changes
}

func (f *policyFile) index(name string) int { return slices.Index(f.names(), name) }

// changed adds what is different between the policy i and the policy j of an older file.
func (f *policyFile) changed(add func(string, ...any), i int, old *policyFile, j int) {
	p, was := &f.policies[i], &old.policies[j]
	now, before := &f.outlines[i], &old.outlines[j]
	if now, before := strings.Join(now.Keys, ", "), strings.Join(before.Keys, ", "); now != before {
		add("policy %s: key was %s and is %s: clients with another key than before start anew, with full buckets", p.Name, before, now)
	}

	limits, oldLimits := f.limits(i), old.limits(j)
	for _, plan := range slices.Sorted(maps.Keys(merged(limits, oldLimits))) {
		what := "limit"
		if plan != "" {
			what = "limit of plan " + plan
		}
		now, is := limits[plan]
		then, had := oldLimits[plan]
		switch {
		case !had:
			add("policy %s: %s is new, %v", p.Name, what, now)
		case !is:
			add("policy %s: %s is removed, it was %v", p.Name, what, then)
		case now != then && now.Calendar() != then.Calendar():
			add("policy %s: %s was %v and is %v: all buckets start anew, as they count for another period", p.Name, what, then, now)
		case now != then:
			add("policy %s: %s was %v and is %v; a bucket is full again when it would have been, or sooner", p.Name, what, then, now)
		}
	}

	for _, subject := range slices.Sorted(maps.Keys(merged(now.Overrides, before.Overrides))) {
		if now, then := text(now.Overrides, subject), text(before.Overrides, subject); now != then {
			add("policy %s: override of %s was %s and is %s", p.Name, subject, then, now)
		}
	}

	for _, field := range []struct {
		name      string
		now, then any
	}{
		{"limiter", cmp.Or(now.Limiter, "none"), cmp.Or(before.Limiter, "none")},
		{"routes", p.Routes, was.Routes},
		{"cost", cmp.Or(now.Cost, "1"), cmp.Or(before.Cost, "1")},
		{"shadow", p.Shadow, was.Shadow},
		{"anonymous: skip", p.SkipAnonymous, was.SkipAnonymous},
		{"max_delay", p.MaxDelay, was.MaxDelay},
		{"max_debt", p.MaxDebt, was.MaxDebt},
		{"on_failure", p.OnFailure, was.OnFailure},
	} {
		if now, then := fmt.Sprint(field.now), fmt.Sprint(field.then); now != then {
			add("policy %s: %s was %s and is %s", p.Name, field.name, then, now)
		}
	}
}

// lower reports whether a limit allows less than another: less in the long run, or, if
// both are of a kind, less at once.
func lower(a, b gcra.Limit) bool {
	switch unlimited := gcra.Unlimited(); {
	case a == unlimited:
		return false
	case b == unlimited:
		return true
	}
	return a.Rate() < b.Rate() || a.IsQuota() == b.IsQuota() && a.Capacity() < b.Capacity()
}

func text(overrides map[string]middleware.Override, name string) string {
	o, ok := overrides[name]
	switch {
	case !ok:
		return "missing"
	case o.Banned:
		return "banned"
	}
	return o.Limit.String()
}

func merged[V any](a, b map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// oneOf lists what is wanted: "a, b or c".
func oneOf(names []string) string {
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return cmp.Or(strings.Join(names, ""), "none")
}
