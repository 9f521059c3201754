package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
)

func (c *command) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List overrides and bans: who set them, when, why and for how long",
		Example: `  ratelimit override list
  ratelimit override list --json > overrides.json   # a copy, for import`,
		Args: asUsed,
		RunE: c.onOverrides(func(cmd *cobra.Command, set *overrideSet, _ []string) error {
			if c.json {
				printJSON(cmd.OutOrStdout(), set.sorted())
			} else {
				printEntries(cmd.OutOrStdout(), set.sorted(), set.now)
			}

			for _, field := range slices.Sorted(maps.Keys(set.broken)) {
				note(cmd.ErrOrStderr(), "broken, and skipped by servers: %s", plain(set.broken[field].Error()))
			}
			if len(set.broken) > 0 {
				return errFound
			}
			return nil
		}),
	}
	return c.uses(cmd, "redis", "prefix", "json")
}

func (c *command) importAll() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Set all overrides of a file that list --json has written",
		Long: `Import sets all overrides of a file that "ratelimit override list --json" has
written, also in a Redis that has lost its data. Those that have ended are left
out. If one is broken, nothing is set.`,
		Example: "  ratelimit override import overrides.json",
		Args:    asUsed,
		RunE: c.onOverrides(func(cmd *cobra.Command, set *overrideSet, args []string) error {
			entries, err := readEntries(args[0], set.now)
			if err != nil {
				return err
			}

			if err := set.write(cmd.Context(), entries); err != nil {
				return err
			}

			fmt.Fprintf(cmd.OutOrStdout(), "%d set\n", len(entries))
			return nil
		}),
	}
	return c.uses(cmd, "redis", "prefix")
}

// maxImport is more than list prints of as many overrides as there may be.
const maxImport = 4 * overrides.MostBytes

// readEntries reads a file of list, without the entries that have ended. All are right, or
// there is an error for the first ten that are not.
func readEntries(name string, now time.Time) (entries []overrides.Entry, err error) {
	text, err := readAtMost(name, maxImport)
	if err != nil {
		return nil, err
	}
	var all []overrides.Entry
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w; want what list --json prints, in %d bytes at most", name, err, maxImport)
	}

	var errs []error
	for i, e := range all {
		if err := e.Check(now); err != nil {
			errs = append(errs, fmt.Errorf("%s: entry %d: %w", name, i+1, err))
		}
		if now.Before(e.Until) {
			entries = append(entries, e)
		}
	}
	if more := len(errs) - 10; more > 0 {
		errs = append(errs[:10], fmt.Errorf("and %d more", more))
	}
	return entries, errors.Join(errs...)
}

func printEntries(w io.Writer, entries []overrides.Entry, now time.Time) {
	if len(entries) == 0 {
		fmt.Fprintln(w, "no overrides")
		return
	}
	var t table
	t.add("SUBJECT", "POLICY", "LIMIT", "ENDS IN")
	for _, e := range entries {
		t.add(plain(e.Subject), policyOf(e), e.Limit, human(e.Until.Sub(now)))
		t.add(plain("by " + e.By + " at " + e.At.Format(time.RFC3339) + ": " + cmp.Or(e.Why, "no reason")))
	}
	t.print(w, "")
}

// describe says in words what an entry does.
func describe(e overrides.Entry) string {
	what := "limit " + e.Limit
	switch e.Limit {
	case overrides.Banned:
		what = "banned"
	case gcra.Unlimited().String():
		what = "no limit"
	case overrides.Default:
		what = "the limits without overrides"
	}
	return fmt.Sprintf("%s: %s in %s", plain(e.Subject), what, policyOf(e))
}

// origin says who has set an entry, why and until when.
func origin(e overrides.Entry, now time.Time) string {
	text := "by " + e.By + ", ends in " + human(e.Until.Sub(now))
	if e.Why != "" {
		text = e.Why + ", " + text
	}
	return text
}

func policyOf(e overrides.Entry) string { return cmp.Or(e.Policy, "all policies") }
