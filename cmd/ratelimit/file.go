package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// policyFile is the policies of a file, or what servers say of theirs.
type policyFile struct {
	policies []middleware.Policy
	outlines []policyfile.Outline // of each
	unsure   []string             // what there is to say of the limit if servers disagree, or a function decides

	from  string // who says so; "" if nobody does
	notes []string
	kinds map[string][]string // of keys, by policy; only of servers
	deaf  map[string]bool     // policies that no server follows overrides in
}

func (f *policyFile) notef(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// enough is more than policyfile reads.
const enough = 1 << 20

// loadPolicies reads a file as a server does.
func loadPolicies(name string, known policyfile.Names) (*policyFile, error) {
	data, err := readAtMost(name, enough)
	if err != nil {
		return nil, err
	}
	outlines, err := policyfile.Describe(name, data, known)
	if err != nil {
		return nil, err
	}

	file := &policyFile{outlines: outlines, unsure: make([]string, len(outlines)), from: name}
	limiters := map[string][]string{}
	for _, o := range outlines {
		file.policies = append(file.policies, o.Policy)
		limiters[o.Limiter] = append(limiters[o.Limiter], o.Policy.Name)
	}

	for _, limiter := range slices.Sorted(maps.Keys(limiters)) {
		if limiter != "" {
			file.notef("limiter %s: %s", limiter, strings.Join(limiters[limiter], ", "))
		}
	}
	return file, nil
}

// readAtMost reads a file, which may be a pipe or a device, and no more than most bytes of it.
func readAtMost(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, most))
}

// limits returns the limits that a policy may apply to a subject without an override, by
// the names of their plans; a limit beside plans has the name "".
func (f *policyFile) limits(i int) map[string]gcra.Limit {
	limits := map[string]gcra.Limit{}
	maps.Copy(limits, f.policies[i].Plans)
	if limit := f.outlines[i].Limit; limit != (gcra.Limit{}) {
		limits[""] = limit
	}
	return limits
}

// buckets are the limits of a policy by the bucket: rates share one, and so do quotas of one calendar.
func buckets(limits map[string]gcra.Limit) map[gcra.Calendar]map[string]gcra.Limit {
	all := map[gcra.Calendar]map[string]gcra.Limit{}
	for plan, limit := range limits {
		if all[limit.Calendar()] == nil {
			all[limit.Calendar()] = map[string]gcra.Limit{}
		}
		all[limit.Calendar()][plan] = limit
	}
	return all
}

// limitsOf returns the limits that a policy may apply to a subject.
func (f *policyFile) limitsOf(i int, subject string) map[string]gcra.Limit {
	if o, ok := f.policies[i].OverrideOf(subject); ok && !o.Banned {
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
