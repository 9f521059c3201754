package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
)

// override is the command "override".
func (c *command) override() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Give one subject another limit, or none, for a while, on all servers",
		Long: `Overrides are kept in Redis with who set them, when and why, and hold within five
seconds on every server that uses package fleet. Each has an end; what is to stay
belongs into the file of policies.`,
		Example: `  ratelimit override set ip:192.0.2.7 none --for 1h --why "import of their data"
  ratelimit override set sub:alice 1000/minute --policy client --for 24h --policies policies.yaml
  ratelimit override list
  ratelimit override unset ip:192.0.2.7`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("the command is missing; want set, unset, list, dump or import")
		},
	}
	cmd.AddCommand(c.set(), c.unset(), c.list(), c.dump(), c.importAll())
	return cmd
}

// terms are the flags of set and ban.
type terms struct {
	policy, why string
	length      time.Duration
	force       bool
}

func (t *terms) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.policy, "policy", "", "`name` of the policy (default: all)")
	cmd.Flags().StringVar(&t.why, "why", "", "`reason`, for those who list overrides")
	cmd.Flags().DurationVar(&t.length, "for", 0, "`time` until it ends, such as 1h; at most 366 days (required)")
}

func (c *command) set() *cobra.Command {
	var t terms
	cmd := &cobra.Command{
		Use:   "set SUBJECT LIMIT",
		Short: "Set a limit, such as 1000/minute, or none",
		Long: `Set gives a subject another limit in one policy, or none in one or all, until it
ends. A limit that is lower than the present one needs --force, as does any limit
if --policies does not say what the present one is. To deny all, use ban.`,
		Example: `  ratelimit override set ip:192.0.2.7 none --for 1h
  ratelimit override set sub:alice 1000/minute --policy client --for 24h --policies policies.yaml`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] == overrides.Banned {
				return usagef("LIMIT is banned; want ratelimit ban")
			}
			return c.write(cmd, overrides.Entry{Subject: args[0], Limit: args[1]}, &t)
		},
	}
	t.addFlags(cmd)
	cmd.Flags().BoolVar(&t.force, "force", false, "also if the limit is lower than the present one")
	return uses(cmd, "redis", "prefix", "policies")
}

// ban is the command "ban".
func (c *command) ban() *cobra.Command {
	var t terms
	cmd := &cobra.Command{
		Use:   "ban SUBJECT",
		Short: "Deny all requests of this subject for a while, on all servers",
		Long: `Ban denies all requests of a subject until it ends, in one policy or all. It is
an override like others: "ratelimit override unset" takes it back.`,
		Example: `  ratelimit ban ip:192.0.2.7 --for 1h --why "scraper"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.write(cmd, overrides.Entry{Subject: args[0], Limit: overrides.Banned}, &t)
		},
	}
	t.addFlags(cmd)
	return uses(cmd, "redis", "prefix", "policies")
}

func (c *command) unset() *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Use:     "unset SUBJECT",
		Short:   "Take back the overrides and bans of a subject",
		Example: "  ratelimit override unset ip:192.0.2.7",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			defer set.client.Close()

			var fields []string
			for field, e := range set.entries {
				if e.Subject == args[0] && (!cmd.Flags().Changed("policy") || e.Policy == policy) {
					fields = append(fields, field)
				}
			}
			if len(fields) == 0 {
				fmt.Fprintf(cmd.OutOrStdout(), "%s has no override\n", plain(args[0]))
				return errFound
			}
			if err := set.write(cmd.Context(), nil, fields); err != nil {
				return err
			}
			slices.Sort(fields)
			for _, field := range fields {
				fmt.Fprintln(cmd.OutOrStdout(), "taken back:", describe(set.entries[field], set.now))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&policy, "policy", "", "`name` of the policy (default: those of all)")
	return uses(cmd, "redis", "prefix")
}

func (c *command) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List overrides and bans, with who set them, when, why and until when",
		Example: "  ratelimit override list\n  ratelimit override list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			defer set.client.Close()

			if c.json {
				printJSON(cmd.OutOrStdout(), set.sorted())
			} else {
				printEntries(cmd.OutOrStdout(), set.sorted(), set.now)
			}
			for _, err := range set.broken {
				fmt.Fprintln(cmd.ErrOrStderr(), "broken, and skipped by servers:", err)
			}
			if len(set.broken) > 0 {
				return errFound
			}
			return nil
		},
	}
	return uses(cmd, "redis", "prefix", "json")
}

func (c *command) dump() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dump",
		Short:   "Print all overrides for import: one JSON object a line",
		Example: "  ratelimit override dump > overrides.jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			defer set.client.Close()

			lines := json.NewEncoder(cmd.OutOrStdout())
			lines.SetEscapeHTML(false)
			for _, e := range set.sorted() {
				if err := lines.Encode(e); err != nil {
					return err
				}
			}
			return errors.Join(set.broken...)
		},
	}
	return uses(cmd, "redis", "prefix")
}

func (c *command) importAll() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Set all overrides of a dump",
		Long: `Import sets all overrides of a file that dump has written; - is standard input.
Those that have ended are left out. If one of them is broken, nothing is set.`,
		Example: "  ratelimit override import overrides.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			input := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				input = file
			}
			set, err := c.open(cmd.Context())
			if err != nil {
				return err
			}
			defer set.client.Close()

			entries, err := readEntries(input, set.now)
			if err != nil {
				return err
			}
			if err := set.write(cmd.Context(), entries, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d set\n", len(entries))
			return nil
		},
	}
	return uses(cmd, "redis", "prefix")
}

// readEntries reads a dump. All entries are right, or there is an error for each that is not.
func readEntries(r io.Reader, now time.Time) (entries []overrides.Entry, err error) {
	var errs []error
	for lines, n := json.NewDecoder(r), 1; ; n++ {
		var e overrides.Entry
		err := lines.Decode(&e)
		if errors.Is(err, io.EOF) {
			return entries, errors.Join(errs...)
		}
		if err != nil {
			return nil, errors.Join(append(errs, fmt.Errorf("entry %d: %w", n, err))...)
		}
		if err := e.Check(); err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", n, err))
		}
		if now.Before(e.Until) {
			entries = append(entries, e)
		}
	}
}

// write sets one override.
func (c *command) write(cmd *cobra.Command, e overrides.Entry, t *terms) error {
	switch {
	case t.length <= 0:
		return usagef("--for is missing; want how long, such as --for 1h")
	case t.length > overrides.Longest:
		return usagef("--for is %v; want at most 366 days: a longer override belongs into the file of policies", t.length)
	}

	e.Policy, e.Why, e.By, e.At = t.policy, t.why, operator(), time.Now().UTC().Truncate(time.Second)
	e.Until = e.At.Add(t.length)
	if err := e.Check(); err != nil {
		return usageError{err}
	}

	set, err := c.open(cmd.Context())
	if err != nil {
		return err
	}
	defer set.client.Close()

	// By the clock of Redis.
	e.At = set.now.UTC().Truncate(time.Second)
	e.Until = e.At.Add(t.length)
	if err := c.allows(&e, set.entries[e.Field()], t.force); err != nil {
		return err
	}
	if err := set.write(cmd.Context(), []overrides.Entry{e}, nil); err != nil {
		return err
	}

	fmt.Fprintln(cmd.OutOrStdout(), "set:", describe(e, e.At))
	if e.Policy != "" && c.policies == "" {
		fmt.Fprintln(cmd.OutOrStdout(), "Without --policies it was not checked that there is such a policy.")
	}
	fmt.Fprintln(cmd.OutOrStdout(), "It holds within five seconds on servers that use package fleet.")
	return nil
}

// allows returns an error if the override is lower than the present limit, or may be. old is
// the present override, or zero.
func (c *command) allows(e *overrides.Entry, old overrides.Entry, force bool) error {
	var file *policyFile
	if c.policies != "" {
		var err error
		if file, err = loadPolicies(c.policies, registered{}); err != nil {
			return err
		}
		if e.Policy != "" && file.index(e.Policy) < 0 {
			var names []string
			for _, p := range file.policies {
				names = append(names, p.Name)
			}
			return usagef("--policy is %q; want %s", e.Policy, oneOf(names))
		}
	}
	limit := e.Override().Limit
	switch {
	case e.Limit == overrides.Banned || limit == gcra.Unlimited():
		return nil
	case e.Policy == "":
		return usagef("--policy is missing; want the name of a policy, as one limit cannot fit all of them")
	case force:
		return nil
	}

	if was := old.Override(); old.Subject != "" && !was.Banned {
		if lower(limit, was.Limit) {
			return usagef("%v is lower than the present override, %v; want --force if that is meant", limit, was.Limit)
		}
		return nil
	}
	if file == nil {
		return usagef("the present limit is not known; want --policies to compare it with, or --force")
	}
	i := file.index(e.Policy)
	limits := file.limits(i)
	if o, ok := file.policies[i].OverrideOf(e.Subject); ok {
		limits = map[string]gcra.Limit{"": o.Limit}
	}
	for _, plan := range slices.Sorted(maps.Keys(limits)) {
		if lower(limit, limits[plan]) {
			return usagef("%v is lower than the present limit, %v; want --force if that is meant", limit, limits[plan])
		}
	}
	return nil
}

// operator names who runs the command.
func operator() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// overrideSet is what Redis has.
type overrideSet struct {
	client  redis.UniversalClient
	key     string
	now     time.Time // of Redis
	entries map[string]overrides.Entry
	ended   []string // fields
	broken  []error
}

// open reads the overrides.
func (c *command) open(ctx context.Context) (*overrideSet, error) {
	client, err := c.connect()
	if err != nil {
		return nil, err
	}
	set := &overrideSet{client: client, key: overrides.Key(c.prefix), entries: map[string]overrides.Entry{}}
	if err := set.read(ctx); err != nil {
		client.Close()
		return nil, err
	}
	return set, nil
}

func (s *overrideSet) read(ctx context.Context) (err error) {
	if s.now, err = s.client.Time(ctx).Result(); err != nil {
		return err
	}
	fields, err := s.client.HGetAll(ctx, s.key).Result()
	if err != nil {
		return err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		e, err := overrides.Parse(field, fields[field])
		switch {
		case field == overrides.Version:
		case err != nil:
			s.broken = append(s.broken, err)
		case !s.now.Before(e.Until):
			s.ended = append(s.ended, field)
		default:
			s.entries[field] = e
		}
	}
	return nil
}

// write sets entries and removes fields in one step, and those that have ended. Its last
// field tells servers that something has changed.
func (s *overrideSet) write(ctx context.Context, entries []overrides.Entry, remove []string) error {
	after := maps.Clone(s.entries)
	values := []any{overrides.Version, strconv.FormatUint(rand.Uint64(), 36)}
	for _, e := range entries {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		values = append(values, e.Field(), string(text))
		after[e.Field()] = e
	}
	for _, field := range remove {
		delete(after, field)
	}
	if n := len(after) + len(s.broken); n > overrides.Most {
		return fmt.Errorf("there would be %d overrides; want at most %d: put those that stay into the file of policies", n, overrides.Most)
	}

	remove = slices.DeleteFunc(append(slices.Clone(s.ended), remove...), func(field string) bool {
		return slices.ContainsFunc(entries, func(e overrides.Entry) bool { return e.Field() == field })
	})
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		if len(remove) > 0 {
			p.HDel(ctx, s.key, remove...)
		}
		p.HSet(ctx, s.key, values...)
		return nil
	})
	return err
}

// find returns the override of a subject that servers use in a policy.
func (s *overrideSet) find(policy, subject string) (overrides.Entry, bool) {
	for _, policy := range []string{policy, ""} {
		e := overrides.Entry{Subject: subject, Policy: policy}
		if found, ok := s.entries[e.Field()]; ok {
			return found, true
		}
	}
	return overrides.Entry{}, false
}

func (s *overrideSet) sorted() []overrides.Entry {
	return slices.SortedFunc(maps.Values(s.entries), func(a, b overrides.Entry) int {
		return cmp.Or(strings.Compare(a.Subject, b.Subject), strings.Compare(a.Policy, b.Policy))
	})
}

// describe says in words what an entry does.
func describe(e overrides.Entry, now time.Time) string {
	what := "limit " + e.Limit
	switch e.Limit {
	case overrides.Banned:
		what = "banned"
	case gcra.Unlimited().String():
		what = "no limit"
	}
	return fmt.Sprintf("%s: %s in %s, ends in %s (%s)", plain(e.Subject), what, policyOf(e), human(e.Until.Sub(now)), e.Until.Format(time.RFC3339))
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

func printEntries(w io.Writer, entries []overrides.Entry, now time.Time) {
	if len(entries) == 0 {
		fmt.Fprintln(w, "no overrides")
		return
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SUBJECT\tPOLICY\tLIMIT\tENDS IN\tSET BY\tAT\tWHY")
	for _, e := range entries {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", plain(e.Subject), policyOf(e), e.Limit, human(e.Until.Sub(now)), plain(e.By), e.At.Format(time.RFC3339), plain(e.Why))
	}
	t.Flush()
}
