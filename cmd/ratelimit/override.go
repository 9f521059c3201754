package main

import (
	"cmp"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// override is the command "override".
func (c *command) override() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Give a subject another limit, or none, for a while",
		Long: `Overrides are kept in Redis with who set them, when and why, and hold within
five seconds on every server that follows them (package middleware/fleet). Each
has an end; a limit that is to stay belongs in the file of policies.`,
		Example: `  ratelimit override set ip:192.0.2.7 none --for 1h --why "import of their data"
  ratelimit override set sub:alice 1000/minute --policy client --for 7d
  ratelimit override list`,
		Args: noCommand,
		RunE: func(*cobra.Command, []string) error {
			return usagef("the command is missing; want set, unset, list or import")
		},
	}

	cmd.AddCommand(c.set(), c.unset(), c.list(), c.importAll())
	return cmd
}

// terms are the flags of set and ban.
type terms struct {
	policy, why string
	length      span
	force       bool
}

func (t *terms) addFlags(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&t.policy, "policy", "", "`name` of the policy ("+otherwise+")")
	cmd.Flags().StringVar(&t.why, "why", "", "`reason`, for those who list overrides")
	cmd.Flags().BoolVar(&t.force, "force", false, "also if it is lower than the present limit, or of a network above /16 (IPv6: /32)")
	cmd.Flags().Var(&t.length, "for", "`time` until it ends, such as 1h, 7d or 2w; at most 366 days (required)")
}

func (c *command) set() *cobra.Command {
	var t terms
	cmd := &cobra.Command{
		Use:   "set SUBJECT LIMIT...",
		Short: "Set a limit, such as 1000/minute, or none for no limit",
		Long: `Set gives a subject another limit in one policy, or no limit in one or all,
until that ends. "default" gives it the limits that hold without overrides, as
for a customer in a network that is banned. A limit that is lower than the
present one needs --force, and so does any number if the present limit is not
known. To deny all, use ban.`,
		Example: `  ratelimit override set ip:192.0.2.7 none --for 1h
  ratelimit override set ip:198.51.100.7 default --for 1h
  ratelimit override set sub:alice 1000/minute --policy client --for 7d`,
		Args: asUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			limit := strings.Join(args[1:], " ")
			if limit == overrides.Banned {
				return usagef("LIMIT is banned; want ratelimit ban")
			}
			return c.write(cmd, overrides.Entry{Subject: args[0], Limit: limit}, &t)
		},
	}

	t.addFlags(cmd, "default: all; required with a limit")
	return c.uses(cmd, "redis", "prefix", "policies")
}

// ban is the command "ban".
func (c *command) ban() *cobra.Command {
	var t terms
	cmd := &cobra.Command{
		Use:   "ban SUBJECT",
		Short: "Deny the requests of a subject or network for a while",
		Long: `Ban denies the requests of a subject that a policy applies to, in one policy or
all, until it ends. A network such as ip:198.51.100.0/24 is all addresses in it.
A shadow policy bans nobody. A ban is an override like others: "ratelimit
override unset" takes it back.`,
		Example: `  ratelimit ban ip:192.0.2.7 --for 1h --why "scraper"
  ratelimit ban ip:198.51.100.0/24 --for 1h`,
		Args: asUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.write(cmd, overrides.Entry{Subject: args[0], Limit: overrides.Banned}, &t)
		},
	}

	t.addFlags(cmd, "default: all")
	return c.uses(cmd, "redis", "prefix", "policies")
}

func (c *command) unset() *cobra.Command {
	cmd := c.takeBack(false)
	cmd.Use, cmd.Aliases = "unset SUBJECT", []string{"del", "rm", "delete", "remove"}
	cmd.Short, cmd.Example = "Take back the overrides and bans of a subject", "  ratelimit override unset ip:192.0.2.7"
	return cmd
}

func (c *command) unban() *cobra.Command {
	cmd := c.takeBack(true)
	cmd.Use, cmd.Short, cmd.Example = "unban SUBJECT", "Take back the bans of a subject", "  ratelimit unban ip:198.51.100.0/24"
	return cmd
}

// takeBack is the command "override unset" or, for bans only, "unban".
func (c *command) takeBack(bans bool) *cobra.Command {
	var policy string
	cmd := &cobra.Command{
		Args: asUsed,
		RunE: c.onOverrides(func(cmd *cobra.Command, set *overrideSet, args []string) error {
			fields, lines := set.of(args[0], func(p, limit string) bool {
				return (!cmd.Flags().Changed("policy") || p == policy) && (!bans || limit == overrides.Banned)
			})
			if len(fields) == 0 {
				what := map[bool]string{false: "override", true: "ban"}[bans]
				note(cmd.OutOrStdout(), "%s has no %s; \"ratelimit override list\" shows all", plain(args[0]), what)
				return errFound
			}

			if err := set.takeBack(cmd.Context(), fields); err != nil {
				return err
			}
			for _, line := range lines {
				note(cmd.OutOrStdout(), "taken back: %s", line)
			}
			note(cmd.OutOrStdout(), holds)
			return nil
		}),
	}

	cmd.Flags().StringVar(&policy, "policy", "", "only in the policy of this `name` (default: all)")
	return c.uses(cmd, "redis", "prefix")
}

// write sets one override.
func (c *command) write(cmd *cobra.Command, e overrides.Entry, t *terms) error {
	switch {
	case t.length <= 0:
		return usagef("--for is missing; want how long, such as --for 1h")
	case time.Duration(t.length) > overrides.Longest:
		return usagef("--for is %v; want at most 366 days: a limit that is to stay belongs in the file of policies", time.Duration(t.length))
	}

	set, err := c.open(cmd.Context())
	if err != nil {
		return err
	}
	defer set.client.Close()

	e.Policy, e.Why, e.By, e.At = t.policy, t.why, operator(), set.now.UTC().Truncate(time.Second)
	e.Until = e.At.Add(time.Duration(t.length))
	if err := e.Check(set.now); err != nil {
		return usageError{err}
	}

	widest := 16
	network, _ := subject.Network(e.Subject)
	if network.Addr().Is6() {
		widest = 32
	}
	if network.IsValid() && network.Bits() < widest && !t.force {
		return usagef("SUBJECT is %s, larger than a /%d; want --force if that is meant", e.Subject, widest)
	}

	file, err := c.known(cmd.Context(), set.client, set.now)
	if err != nil {
		return err
	}
	rows, err := c.rows(cmd.Context(), file, set, e.Subject)
	if err != nil {
		return err
	}
	if err := allows(file, set, &e, rows, t.force); err != nil {
		return err
	}

	if err := set.write(cmd.Context(), []overrides.Entry{e}); err != nil {
		return err
	}

	note(cmd.OutOrStdout(), "set: %s, ends in %s (%s)", describe(e), human(time.Duration(t.length)), e.Until.Format(time.RFC3339))
	c.noteEffect(cmd, file, set, &e, rows)
	return nil
}

// noteEffect says where an entry that was set holds, and where not.
func (c *command) noteEffect(cmd *cobra.Command, file *policyFile, set *overrideSet, e *overrides.Entry, rows []row) {
	meant := slices.DeleteFunc(file.names(), func(name string) bool { return e.Policy != "" && e.Policy != name })
	deaf := slices.DeleteFunc(slices.Clone(meant), func(name string) bool { return !file.deaf[name] })
	switch {
	case len(deaf) == 0:
		note(cmd.OutOrStdout(), holds)
	case len(deaf) == len(meant):
		note(cmd.ErrOrStderr(), "warning: it changes nothing: no server follows overrides (package middleware/fleet)")
	default:
		note(cmd.OutOrStdout(), holds)
		note(cmd.ErrOrStderr(), "warning: it changes nothing in %s: no server follows overrides there (package middleware/fleet)", strings.Join(deaf, ", "))
	}

	for i, other := range set.over(e) {
		if i == 5 {
			note(cmd.OutOrStdout(), "And more, see ratelimit override list.")
			break
		}
		note(cmd.OutOrStdout(), "But this wins over it, ends in %s: %s", human(other.Until.Sub(set.now)), describe(other))
	}
	if all := set.find("", e.Subject); all != nil && all.Limit == overrides.Banned && e.Policy != "" && e.Limit != overrides.Banned {
		note(cmd.OutOrStdout(), "In other policies this holds: %s", describe(all.Entry))
	}

	c.printNotes(cmd, file)
	network, _ := subject.Network(e.Subject)
	if e.Limit == overrides.Banned && network.IsValid() && len(file.kinds) > 0 {
		file.noteAddresses(cmd)
	}
	switch {
	case file.from == "":
		note(cmd.OutOrStdout(), "No server says what its policies are. Without --policies it was not checked that there is such a policy, and that servers know the subject.")
	case !network.IsValid() || network.IsSingleIP() || network.Bits() == 64:
		c.noteUnknown(cmd, file, e.Subject, rows)
	}
}

const holds = "This holds within five seconds on servers that follow overrides (package middleware/fleet)."

// noteAddresses says which policies have counted an address so far. One that counts by the first key of several may do so later.
func (f *policyFile) noteAddresses(cmd *cobra.Command) {
	var by, unseen []string
	for _, name := range f.names() {
		switch kinds := f.kinds[name]; {
		case slices.Contains(kinds, "ip"):
			by = append(by, name)
		case len(kinds) == 0:
			unseen = append(unseen, name)
		}
	}
	note(cmd.OutOrStdout(), "Policies that have counted an address so far: %s.", cmp.Or(strings.Join(by, ", "), "none"))
	if len(by)+len(unseen) == 0 {
		note(cmd.ErrOrStderr(), "warning: servers have counted nobody by address so far, so this may have no effect")
	}
	if len(unseen) > 0 {
		note(cmd.OutOrStdout(), "Not known yet: %s.", strings.Join(unseen, ", "))
	}
}

// allows returns an error if there is no such policy, or if the override is lower than the
// present limit, or may be.
func allows(file *policyFile, set *overrideSet, e *overrides.Entry, rows []row, force bool) error {
	if file.from != "" && e.Policy != "" && file.index(e.Policy) < 0 {
		return usagef("--policy is %q; want %s", e.Policy, oneOf(file.names()))
	}

	limit := e.GCRA()
	switch {
	case e.Limit == overrides.Banned || e.Limit == overrides.Default || limit == gcra.Unlimited():
		return nil
	case e.Policy == "":
		return usagef("--policy is missing; want the name of a policy, as one limit cannot fit all of them")
	case file.from != "":
		r := row{charge: file.policies[file.index(e.Policy)].Charge(e.Subject, limit)}
		if err := r.unfit(); err != nil {
			return usageError{err}
		}
	}
	if force {
		return nil
	}

	present, what := map[string]gcra.Limit{}, "present limit"
	if old := set.find(e.Policy, e.Subject); old != nil && old.Of != (gcra.Limit{}) {
		present[""], what = old.Of, "present override"
	} else if i := file.index(e.Policy); i >= 0 {
		present = file.limitsOf(i, e.Subject)
		for _, r := range rows { // the bucket in use is of the subject's plan
			if r.Policy == e.Policy && r.Plan != "" && r.inUse() {
				present = map[string]gcra.Limit{r.Plan: r.Limit}
			}
		}
	}
	if len(present) == 0 {
		return usagef("the present limit is not known; want --policies to compare it with, or --force")
	}

	for _, plan := range slices.Sorted(maps.Keys(present)) {
		if plan != "" {
			what = strings.Replace("limit of "+planOf(plan), "of on ", "on ", 1)
		}
		if lower(limit, present[plan]) {
			return usagef("%v is lower than the %s, %v; want --force if that is meant", limit, what, present[plan])
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
