package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// peek is the command "peek".
func (c *command) peek() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peek SUBJECT",
		Short: "Why is this subject limited? What each policy has left for it",
		Long: `Peek shows what is left to a subject in each policy, when its bucket is full
again, what it owes, and which override applies. It changes no bucket.

"no bucket" means that the subject has used nothing of the limit lately, or that
the policy does not count it. Redis does not know a subject's plan: of a quota
the period may tell it, and of rates peek lists the limits of all plans.`,
		Example: "  ratelimit peek ip:192.0.2.7\n  ratelimit peek sub:alice --policies policies.yaml --json",
		Args:    asUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, rows, err := c.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}

			c.show(cmd, file, args[0], rows)
			return nil
		},
	}
	return c.uses(cmd, "redis", "prefix", "policies", "json")
}

// reset is the command "reset".
func (c *command) reset() *cobra.Command {
	var policies []string
	cmd := &cobra.Command{
		Use:   "reset SUBJECT",
		Short: "Fill the buckets of this subject",
		Long: `Reset fills the buckets of a subject, in all policies or those that --policy
names, but not where an override sets no limit. Servers that have cached a
denial go on denying for their DenialTTL at most, which is a second by default.`,
		Example: "  ratelimit reset ip:192.0.2.7 --policy login",
		Args:    asUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, rows, err := c.look(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if rows, err = named(rows, policies); err != nil {
				return err
			}
			c.show(cmd, file, args[0], rows)
			return c.fill(cmd, file, args[0], rows)
		},
	}

	cmd.Flags().StringSliceVar(&policies, "policy", nil, "`names` of policies (default: all)")
	return c.uses(cmd, "redis", "prefix", "policies")
}

// show prints rows, and what there is to say about them.
func (c *command) show(cmd *cobra.Command, file *policyFile, subject string, rows []row) {
	c.printNotes(cmd, file)
	if c.json {
		printJSON(cmd.OutOrStdout(), rows)
	} else {
		printRows(cmd.OutOrStdout(), rows)
	}
	c.noteUnknown(cmd, file, subject, rows)
}

// row is what a policy has for a subject, under one limit.
type row struct {
	Policy     string     `json:"policy"`
	Plan       string     `json:"plan,omitempty"`
	Shadow     bool       `json:"shadow,omitempty"`
	Limit      gcra.Limit `json:"limit"`
	OneOf      string     `json:"one_of,omitempty"` // the limits, if it is not known which
	Left       *int64     `json:"left,omitempty"`
	Debt       int64      `json:"debt,omitempty"`
	FullAfter  float64    `json:"full_after_seconds"`
	PeriodEnds *time.Time `json:"period_ends,omitempty"` // of a quota
	Override   string     `json:"override,omitempty"`    // the limit that it sets, or banned
	Reason     string     `json:"override_reason,omitempty"`

	charge gcra.Charge
}

// limited reports whether the row has a limit, and so may have a bucket.
func (r *row) limited() bool { return r.charge.Policy != "" }

// unfit returns the error of a limit that the policy cannot have, as an override without room for
// its max_debt.
func (r *row) unfit() error {
	if !r.limited() {
		return nil
	}
	_, err := gcra.Peek(context.Background(), gcra.NewMemory(gcra.MemoryConfig{Capacity: 1}), r.charge)
	return err
}

// inUse reports whether there is a bucket: one that is full is none.
func (r *row) inUse() bool { return r.FullAfter > 0 }

// rank is 1 if Redis or the file of policies knows the subject here, and otherwise 0.
func (r *row) rank() int {
	if r.inUse() || r.Override != "" {
		return 1
	}
	return 0
}

// look reads the subject's buckets, in the policies that are known.
func (c *command) look(ctx context.Context, name string) (_ *policyFile, rows []row, err error) {
	if err := overrides.CheckSubject(name); err != nil {
		return nil, nil, usageError{err}
	}
	if network, _ := subject.Network(name); network.Addr().Is4() && !network.IsSingleIP() {
		return nil, nil, usagef("SUBJECT is %s, a network; want an address in it: buckets are of addresses", name)
	}
	set, err := c.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer set.client.Close()

	file, err := c.known(ctx, set.client, set.now)
	if err != nil {
		return nil, nil, err
	}
	if file.from == "" {
		return nil, nil, usagef("no server with the prefix %s has said its policies for an hour; want --policies, a file with the same names and limits", c.prefix)
	}
	rows, err = c.rows(ctx, file, set, name)
	return file, rows, err
}

// rows returns what each policy of the file has for a subject.
func (c *command) rows(ctx context.Context, file *policyFile, set *overrideSet, subject string) (rows []row, err error) {
	store, err := c.store(set.client)
	if err != nil {
		return nil, err
	}
	for i := range file.policies {
		rows = append(rows, file.rows(i, subject, set)...)
	}
	if err := peekAll(ctx, store, rows); err != nil {
		return nil, failed(set.client, err)
	}

	return rows, nil
}

// notes is where notes go: not between JSON.
func (c *command) notes(cmd *cobra.Command) io.Writer {
	if c.json {
		return cmd.ErrOrStderr()
	}
	return cmd.OutOrStdout()
}

// printNotes says where the policies come from, and what is wrong there.
func (c *command) printNotes(cmd *cobra.Command, f *policyFile) {
	for _, text := range f.notes {
		note(c.notes(cmd), "%s", plain(text))
	}
}

// noteUnknown says that servers may know the subject or the policies by other names, unless a
// row knows the subject.
func (c *command) noteUnknown(cmd *cobra.Command, f *policyFile, subject string, rows []row) {
	if !slices.ContainsFunc(rows, func(r row) bool { return r.rank() > 0 }) {
		note(c.notes(cmd), "note: no bucket of %s is in use in the policies of %s: it has made no request lately, or servers know it "+
			"or the policies by other names, which \"ratelimit top\" shows", plain(subject), plain(f.from))
	}
}

// rows returns the rows of the policy i, without what is left.
func (f *policyFile) rows(i int, subject string, set *overrideSet) (rows []row) {
	p := &f.policies[i]
	limits, override, reason := f.limits(i), "", ""
	if o, ok := p.OverrideOf(subject); ok {
		if override, reason = o.Limit.String(), o.Name; o.Banned {
			override = overrides.Banned // the bucket is as it was
		} else {
			limits = map[string]gcra.Limit{"": o.Limit}
		}
	}
	if e := set.find(p.Name, subject); e != nil && (e.Limit != overrides.Default || override == "") {
		override, reason = e.Limit, origin(e.Entry, set.now)
		if f.deaf[p.Name] {
			reason = "changes nothing, as no server follows overrides here; " + reason
		} else if e.Of != (gcra.Limit{}) {
			limits = map[string]gcra.Limit{"": e.Of}
		}
	}

	function := len(limits) == 0 && f.unsure[i] != ""
	if function {
		limits = map[string]gcra.Limit{"": gcra.PerDay(1).WithBurst(300)} // to see when it is full again
	}

	for _, limits := range buckets(limits) {
		r := row{Policy: p.Name, Shadow: p.Shadow, Override: override, Reason: reason}
		largest := gcra.Unlimited() // which cuts off nothing of a bucket
		for plan, limit := range limits {
			if r.Plan, r.Limit = plan, limit; largest == gcra.Unlimited() || limit != gcra.Unlimited() && whole(limit) > whole(largest) {
				largest = limit
			}
		}
		if function || len(limits) > 1 {
			r.Plan, r.Limit, r.OneOf = "", gcra.Limit{}, cmp.Or(f.unsure[i], oneOfLimits(limits))
		}
		if largest != gcra.Unlimited() {
			r.charge = p.Charge(subject, largest)
		}
		if err := r.unfit(); err != nil {
			r.charge, r.Reason = gcra.Charge{}, "not valid in this policy, which follows its on_failure: "+err.Error()
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.Plan, b.Plan) })
	return rows
}

// whole is how long an empty bucket takes to be full, of a quota by the unit.
func whole(l gcra.Limit) time.Duration {
	if l.IsQuota() {
		return time.Duration(l.Count)
	}
	return l.Interval() * time.Duration(l.Capacity())
}

// peekAll fills in what is left, in as few calls as the store takes.
func peekAll(ctx context.Context, store gcra.Store, rows []row) error {
	const most = 256 // charges in a call
	var charges []gcra.Charge
	for i := range rows {
		if !rows[i].limited() {
			continue
		}

		// The bucket without its MaxDebt, but larger by that: Remaining then says what is owed.
		charge := rows[i].charge
		charge.Peek = true
		whole := charge
		if charge.Limit.IsQuota() && charge.MaxDebt > 0 {
			whole.Limit.Count += charge.MaxDebt
			whole.MaxDebt = 0
		}
		charges = append(charges, charge, whole)
	}

	for some := range slices.Chunk(charges, most) {
		if _, err := store.Take(ctx, some); err != nil {
			return err
		}
	}

	for i := range rows {
		if !rows[i].limited() {
			continue
		}
		rows[i].set(charges[0], charges[1])
		charges = charges[2:]
	}
	return nil
}

// set fills in what two peeks have found, the second without an end of the debt.
func (r *row) set(c, whole gcra.Charge) {
	left := c.Result.Remaining
	r.FullAfter = c.Result.ResetAfter.Seconds()
	if r.OneOf == "" {
		r.Left = &left
	}
	if !c.Limit.IsQuota() {
		interval := c.Limit.Interval()
		beyond := c.Result.ResetAfter - time.Duration(c.Limit.Capacity())*interval
		r.Debt = max(0, int64((beyond+interval-1)/interval))
		return
	}

	ends := c.Period.UTC()
	r.PeriodEnds = &ends
	r.Debt = max(0, whole.Limit.Count-whole.Result.Remaining-c.Limit.Count)
	if left == c.Limit.Capacity() {
		r.FullAfter = 0
	}
}

func printRows(w io.Writer, rows []row) {
	var t table
	t.add("POLICY", "LIMIT", "LEFT", "OWES", "FULL AGAIN")

	// The file does not say which of the others count the subject at all.
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.rank(), a.rank()) })

	for _, r := range rows {
		name, limit := r.Policy, r.Limit.String()
		if r.Plan != "" {
			name += " (" + plain(planOf(r.Plan)) + ")"
		}
		if r.Shadow {
			name += " (shadow)"
		}

		if r.OneOf != "" {
			limit = "?"
		}

		left, owes, full := "-", "-", "-"
		switch {
		case r.inUse():
			if r.Left != nil {
				left, owes = strconv.FormatInt(*r.Left, 10), strconv.FormatInt(r.Debt, 10)
			}
			full = "in " + human(time.Duration(r.FullAfter*float64(time.Second)))
		case r.limited():
			full = "no bucket"
		}
		t.add(name, limit, left, owes, full)
		if r.OneOf != "" {
			t.add(plain(r.OneOf))
		}

		if r.Override != "" {
			t.add("override: " + plain(strings.TrimSuffix(r.Override+" ("+r.Reason+")", " ()")))
		}
	}
	t.print(w, "")
}

// named returns the rows of the policies, or all if there are no names.
func named(rows []row, names []string) (some []row, err error) {
	known := policiesOf(rows, nil)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usagef("--policy is %q; want %s", name, oneOf(known))
		}
	}
	for _, r := range rows {
		if len(names) == 0 || slices.Contains(names, r.Policy) {
			some = append(some, r)
		}
	}
	return some, nil
}

// fill resets the buckets of the rows.
func (c *command) fill(cmd *cobra.Command, file *policyFile, who string, rows []row) error {
	// The bucket under an override "none" is not in the row: it counts again when that ends.
	if free := policiesOf(rows, func(r row) bool { return !r.limited() && r.Override == gcra.Unlimited().String() }); len(free) > 0 {
		note(cmd.OutOrStdout(), "not reset, as an override sets no limit there: %s", strings.Join(free, ", "))
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return !r.limited() })
	if len(rows) == 0 {
		return nil
	}

	client, err := c.connect()
	if err != nil {
		return err
	}
	defer client.Close()

	store, err := c.store(client)
	if err != nil {
		return err
	}

	for i, r := range rows {
		if err := gcra.Reset(cmd.Context(), store, r.charge); err != nil {
			return fmt.Errorf("policy %s: %w; filled before: %s", r.Policy, failed(client, err), oneOf(policiesOf(rows[:i], nil)))
		}
	}

	full := policiesOf(rows, func(r row) bool {
		kinds := file.kinds[r.Policy]
		return r.inUse() || len(kinds) == 0 || slices.Contains(kinds, subject.KindOf(who))
	})
	if len(full) == 0 {
		full = policiesOf(rows, nil)
	}
	note(cmd.OutOrStdout(), "%s is full in: %s", plain(who), strings.Join(full, ", "))

	banned := policiesOf(rows, func(r row) bool { return r.Override == overrides.Banned && !r.Shadow && !file.deaf[r.Policy] })
	if len(banned) > 0 {
		note(cmd.OutOrStdout(), "but it is banned in: %s", strings.Join(banned, ", "))
	}
	return nil
}

// policiesOf names the policies of some rows, each once; nil is of all.
func policiesOf(rows []row, some func(row) bool) (names []string) {
	for _, r := range rows {
		if (some == nil || some(r)) && !slices.Contains(names, r.Policy) {
			names = append(names, r.Policy)
		}
	}
	return names
}
