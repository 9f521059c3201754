package main

import (
	"io"
	"maps"
	"os"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// policyFile is a valid file of policies.
type policyFile struct {
	policies []middleware.Policy
	outlines []policyfile.Outline // of each
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

	file := &policyFile{outlines: outlines}
	for _, o := range outlines {
		file.policies = append(file.policies, o.Policy)
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

// file reads the file of --policies. Without one it is nil.
func (c *command) file() (f *policyFile, err error) {
	if c.policies != "" {
		f, err = loadPolicies(c.policies, policyfile.Names{})
	}
	return f, err
}

// limits returns the limits that a policy may apply to a subject without an override, by
// the names of their plans; that of a limit beside plans is "".
func (f *policyFile) limits(i int) map[string]gcra.Limit {
	limits := map[string]gcra.Limit{}
	maps.Copy(limits, f.outlines[i].Plans)
	if limit := f.outlines[i].Limit; limit != (gcra.Limit{}) {
		limits[""] = limit
	}
	return limits
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
