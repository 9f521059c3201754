package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// top is the command "top".
func (c *command) top() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Who is limited? Who uses each policy most, over all servers",
		Long: `Top lists the subjects whose buckets take longest to be full again, by policy;
of a quota those that have used most. Who was denied is in the memory of each
server: see its inspector's page.

It reads all keys, some 25 at a time and with pauses, so Redis stays free for
its servers: a million keys take some ten seconds, longer if Redis is busy or
far. A subject of more than 64 bytes in its key is shown as its hash.`,
		Example: "  ratelimit top\n  watch ratelimit top -n 3",
		Args:    asUsed,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 || most > 1000 {
				return usagef("-n is %d; want 1 to 1000", most)
			}
			client, err := c.connect()
			if err != nil {
				return err
			}
			defer client.Close()
			return c.printTop(cmd, client, most)
		},
	}

	cmd.Flags().IntVarP(&most, "number", "n", 10, "`number` of subjects of each policy")
	return c.uses(cmd, "redis", "prefix", "policies", "json")
}

// printTop reads and prints the lists.
func (c *command) printTop(cmd *cobra.Command, client redis.UniversalClient, most int) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	s := scan{prefix: c.prefix, most: most, lists: map[listName]*list{}}
	if err := s.run(ctx, client); err != nil {
		return failed(client, err)
	}
	set := newOverrideSet(client, c.prefix)
	if err := set.read(ctx); err != nil {
		return failed(client, err)
	}
	file, err := c.known(ctx, client, s.now)
	if err != nil {
		return err
	}

	lists := s.sorted(file, set)
	c.printNotes(cmd, file)
	if c.json {
		printJSON(out, lists)
		return nil
	}
	printLists(out, lists, s.now)
	if file.from == "" && len(lists) > 0 {
		note(out, "No server says what its policies are: the limits, and the units used of rates, need --policies.")
	}
	return nil
}

// scan reads the buckets in Redis. Its memory is bounded: it keeps the most used subjects
// of each policy.
type scan struct {
	prefix string
	most   int

	mu    sync.Mutex
	now   time.Time
	lists map[listName]*list
}

// listName names a list: the buckets of a policy that are rates, or quotas of one calendar.
type listName struct{ policy, calendar string }

// list is what top shows of a policy.
type list struct {
	Policy   string `json:"policy"`
	Calendar string `json:"calendar,omitempty"` // of quotas, such as month15
	InUse    int    `json:"in_use"`             // subjects whose bucket is not full
	OneOf    string `json:"one_of,omitempty"`   // the limits, if the plan decides
	Subjects []used `json:"subjects"`

	period gcra.Calendar
}

// used is a subject and its bucket.
type used struct {
	Subject    string     `json:"subject"`
	Used       int64      `json:"used"`            // units; of a rate without --policies 0
	Limit      string     `json:"limit,omitempty"` // "" if it is not known
	FullAfter  float64    `json:"full_after_seconds"`
	PeriodEnds *time.Time `json:"period_ends,omitempty"`

	ahead time.Duration // of a rate until the bucket is full, of a quota a tick for each unit
}

const (
	page = 25                   // keys of a round trip, for which Redis serves nobody else: 45 µs
	work = 2 * time.Millisecond // until a pause
)

// run reads all keys of all nodes.
func (s *scan) run(ctx context.Context, client redis.UniversalClient) (err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // leave the other cores of the machine to Redis

	if s.now, err = client.Time(ctx).Result(); err != nil {
		return err
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return s.node(ctx, node, true) })
	}
	return s.node(ctx, client, false)
}

// globs are the characters that a pattern of SCAN does not take as themselves.
var globs = regexp.MustCompile(`[*?\[\]\\^]`)

// node reads the keys of a node. On a cluster it asks for each key alone.
func (s *scan) node(ctx context.Context, node redis.Cmdable, apart bool) error {
	pattern := globs.ReplaceAllString(s.prefix, `\$0`) + "{*"
	var keys, before []string
	began := time.Now()

	for cursor, more := uint64(0), true; more || len(keys) > 0; {
		next, values, err := step(ctx, node, cursor, more, pattern, keys, apart)
		if err != nil {
			return err
		}
		s.add(keys, values)
		if len(keys) > 0 {
			before = keys
		}
		keys = nil
		if more {
			if keys, cursor, err = next.Result(); err != nil {
				return err
			}
			more = cursor != 0

			// When Redis makes its table smaller, SCAN may return the last few keys again.
			keys = slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(before, key) })
		}

		// A server that is busy answers later, and so has longer pauses.
		if worked := time.Since(began); worked >= work {
			select {
			case <-time.After(worked / 2):
			case <-ctx.Done():
				return ctx.Err()
			}
			began = time.Now()
		}
	}
	return nil
}

// step reads the values of one page and the keys of the next in one round trip.
func step(ctx context.Context, node redis.Cmdable, cursor uint64, more bool, pattern string, keys []string, apart bool) (next *redis.ScanCmd, values []any, err error) {
	together := max(1, len(keys))
	if apart {
		together = 1
	}

	var answers []*redis.SliceCmd
	_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for some := range slices.Chunk(keys, together) {
			answers = append(answers, p.MGet(ctx, some...))
		}
		if more {
			next = p.Scan(ctx, cursor, pattern, page)
		}
		return nil
	})

	if apart && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		err = nil // the key has moved, and is read where it is now
	}

	for _, a := range answers {
		if a.Err() != nil {
			values = append(values, nil)
		}
		values = append(values, a.Val()...)
	}
	return next, values, err
}

// add counts buckets and their values.
func (s *scan) add(keys []string, values []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, key := range keys {
		text, _ := values[i].(string)
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue
		}
		if subject, policy, calendar, ok := rediskit.ParseKey(s.prefix, key); ok {
			s.bucket(listName{policy, calendar}, subject, rediskit.Time(value))
		}
	}
}

// bucket counts one bucket, which is full at the time tat; a quota has used a tick for each
// unit beyond the end of its period.
func (s *scan) bucket(name listName, subject string, tat time.Time) {
	l := s.lists[name]
	if l == nil {
		l = &list{Policy: name.policy, Calendar: name.calendar, Subjects: []used{}, period: calendarOf(name.calendar)}
		s.lists[name] = l
	}

	from, u := s.now, used{Subject: subject}
	if name.calendar != "" {
		if l.period == "" {
			return // of a newer version
		}
		_, from = l.period.Period(s.now)

		// A period may have begun since the clock was read, or before it was set back.
		if charged, _ := l.period.Period(tat.Add(-100 * time.Nanosecond)); charged.After(from) {
			from = charged
		}
		u.PeriodEnds = &from
	}

	if u.ahead = tat.Sub(from); u.ahead <= 0 {
		return
	}

	l.InUse++
	if len(l.Subjects) == s.most && u.ahead <= l.Subjects[s.most-1].ahead {
		return
	}
	if slices.ContainsFunc(l.Subjects, func(other used) bool { return other.Subject == subject }) {
		l.InUse-- // its slot moves: two nodes have it
		return
	}
	at, _ := slices.BinarySearchFunc(l.Subjects, u, func(a, b used) int { return cmp.Compare(b.ahead, a.ahead) })
	l.Subjects = slices.Insert(l.Subjects[:min(len(l.Subjects), s.most-1)], min(at, s.most-1), u)
}

var anchored = regexp.MustCompile(`^([a-z]+)(\d*)(?:\.(.+))?$`)

// calendarOf reads the calendar of a key, "month15.Europe/Berlin", the zero Calendar if it is none.
func calendarOf(text string) gcra.Calendar {
	parts := anchored.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	limit := "1/calendar " + parts[1]
	if parts[2] != "" {
		limit += " from " + parts[2]
	}
	l, err := gcra.ParseLimit(limit + " " + parts[3])
	if err != nil {
		return ""
	}
	return l.Calendar()
}

// sorted returns the lists by their names. file may be nil.
func (s *scan) sorted(file *policyFile, set *overrideSet) []*list {
	lists := slices.AppendSeq([]*list{}, maps.Values(s.lists))
	slices.SortFunc(lists, func(a, b *list) int {
		return cmp.Or(strings.Compare(a.Policy, b.Policy), strings.Compare(a.Calendar, b.Calendar))
	})

	for _, l := range lists {
		if i := file.index(l.Policy); i >= 0 {
			if limits := buckets(file.limits(i))[l.period]; len(limits) > 1 || file.unsure[i] != "" {
				l.OneOf = cmp.Or(file.unsure[i], oneOfLimits(limits))
			}
		}
		for i := range l.Subjects {
			l.Subjects[i].finish(l, file, set)
		}
	}
	return slices.DeleteFunc(lists, func(l *list) bool { return l.InUse == 0 })
}

// finish sets what is shown, with the limit if the file or an override has it.
func (u *used) finish(l *list, file *policyFile, set *overrideSet) {
	limit := file.limitOf(l, u.Subject)
	if e := set.find(l.Policy, u.Subject); e != nil && e.Of != (gcra.Limit{}) {
		limit = e.Of
	}

	if limit.Calendar() != l.period || limit == gcra.Unlimited() {
		limit = gcra.Limit{} // not of this bucket
	}
	if limit != (gcra.Limit{}) {
		u.Limit = limit.String()
	}

	// A tick of a quota is a unit, and the period says when it is full.
	if l.Calendar != "" {
		u.Used = int64(u.ahead / (100 * time.Nanosecond))
		return
	}

	u.FullAfter = u.ahead.Seconds()
	if interval := limit.Interval(); interval > 0 {
		u.Used = int64((u.ahead + interval - 1) / interval)
	}
}

// limitOf returns the limit of a subject, or zero if it is not known, as with several plans.
func (f *policyFile) limitOf(l *list, subject string) (only gcra.Limit) {
	i := f.index(l.Policy)
	if i < 0 {
		return gcra.Limit{}
	}
	if limits := buckets(f.limitsOf(i, subject))[l.period]; len(limits) == 1 {
		for _, only = range limits {
		}
	}
	return only
}

func printLists(w io.Writer, lists []*list, now time.Time) {
	if len(lists) == 0 {
		note(w, "no bucket is in use: nobody is limited, or the servers use another Redis or prefix")
	}

	for i, l := range lists {
		if i > 0 {
			fmt.Fprintln(w)
		}

		fmt.Fprintf(w, "%s", plain(l.Policy))
		if l.Calendar != "" {
			fmt.Fprintf(w, " (quota by %s)", plain(l.Calendar))
		}
		fmt.Fprintf(w, ", in use by %d\n", l.InUse)

		if l.OneOf != "" {
			fold(w, "  ", "    ", plain(l.OneOf))
		}
		var t table
		t.add("SUBJECT", "USED", "LIMIT", "FULL AGAIN")
		for _, u := range l.Subjects {
			units, full := "-", "in "+human(u.ahead)
			if u.Used > 0 {
				units = strconv.FormatInt(u.Used, 10)
			}
			if u.PeriodEnds != nil {
				full = "in " + human(u.PeriodEnds.Sub(now))
			}
			t.add(cmp.Or(plain(u.Subject), "(anonymous)"), units, cmp.Or(u.Limit, "-"), full)
		}
		t.print(w, "  ")
	}
	if len(lists) > 0 {
		fmt.Fprintln(w)
		note(w, "Who was denied lately is in the memory of each server: see its inspector's page.")
	}
}
