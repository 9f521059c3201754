package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// maxNamed is the number of most denied subjects in the report.
const maxNamed = 5

// report is the text that is printed at the end.
type report struct {
	*player
	stats   logStats
	stopped bool
	share   float64 // of subjects that a suggested limit may deny something
}

func (r *report) print(w io.Writer) {
	var b bytes.Buffer
	r.head(&b)
	for _, t := range r.tallies {
		fmt.Fprintln(&b)
		r.policy(&b, t)
	}
	r.notes(&b)
	w.Write(b.Bytes())
}

func (r *report) head(w io.Writer) {
	const form = "2 Jan 2006 15:04:05 -0700"
	if r.stopped {
		fmt.Fprintln(w, "Stopped before the end.")
	}
	fmt.Fprintf(w, "%s in %s", plural(r.requests, "request"), plural(r.stats.lines, "line"))
	if r.requests > 0 {
		fmt.Fprintf(w, ", %s to %s", r.at(r.first).Format(form), r.at(r.clock).Format(form))
	}
	fmt.Fprintf(w, "\n%s of the requests would have been denied\n", withPercent(r.denied, r.requests))
}

// malformed lists the first lines that could not be read.
func (r *report) malformed() string {
	text := withPercent(r.stats.malformed, r.stats.lines) + " of the lines could not be read:"
	for _, line := range r.stats.examples {
		text += "\n  " + line
	}
	if r.stats.malformed > int64(len(r.stats.examples)) {
		text += "\n  and so on"
	}
	return text
}

// noRequests returns the error for logs without a request.
func (r *report) noRequests() error {
	switch {
	case r.stats.lines > 0:
		return errors.New("no request in the log; " + r.malformed())
	case r.stats.err == nil:
		return errors.New("the log is empty")
	}
	return nil
}

func (r *report) at(micros int64) time.Time { return time.UnixMicro(micros).In(r.stats.zone) }

func (r *report) policy(w io.Writer, t *tally) {
	fmt.Fprintf(w, "policy %s", t.policy.Name)
	if limiter := r.limiters[t.policy.Name]; limiter != "" {
		fmt.Fprintf(w, " of limiter %s", plain(limiter))
	}
	if t.policy.Shadow {
		fmt.Fprint(w, " (shadow)")
	}

	if t.requests == 0 {
		fmt.Fprintln(w, ": applies to no request")
		return
	}

	fmt.Fprintln(w)
	fmt.Fprintf(w, "  requests      %s\n", grouped(t.requests))
	if t.anonymous > 0 {
		fmt.Fprintf(w, "  anonymous     %s, in one shared bucket\n", withPercent(t.anonymous, t.requests))
	}
	fmt.Fprintf(w, "  denied        %s\n", withPercent(t.denied, t.requests))
	if t.delayed > 0 {
		fmt.Fprintf(w, "  delayed       %s\n", withPercent(t.delayed, t.requests))
	}

	title := "most denied"
	for _, c := range t.top.first(maxNamed) {
		fmt.Fprintf(w, "  %-12s  %s  %s\n", title, subjectName(c.name), times(c))
		title = ""
	}

	if t.deniedByOthers > 0 {
		fmt.Fprintf(w, "  by others     %s denied; the table and the suggestions count them as if allowed\n", withPercent(t.deniedByOthers, t.requests))
	}

	for _, m := range t.meters {
		r.limit(w, m.summarize(r.share))
	}
}

func subjectName(key string) string {
	if key == "" {
		return "anonymous"
	}
	return plain(key) // may contain anything
}

func times(c count) string {
	if c.inherited == 0 {
		return grouped(c.n)
	}
	return fmt.Sprintf("%s to %s", grouped(c.n-c.inherited), grouped(c.n))
}

// table has a column for each of these percentiles of subjects.
var table = []struct {
	title      string
	percentile float64
}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"max", 100}}

func row(w io.Writer, what string, sorted []int64) {
	fmt.Fprintf(w, "    %-29s", what)
	for _, column := range table {
		fmt.Fprintf(w, " %10s", grouped(percentile(sorted, column.percentile)))
	}
	fmt.Fprintln(w)
}

// limit prints the summary of the subjects under one limit.
func (r *report) limit(w io.Writer, f summary) {
	fmt.Fprintf(w, "  %v: %s, %s denied at least once\n", f.limit, plural(int64(f.subjects), "subject"), withPercent(int64(f.denied), int64(f.subjects)))
	fmt.Fprintf(w, "    %-29s", "")
	for _, column := range table {
		fmt.Fprintf(w, " %10s", column.title)
	}
	fmt.Fprintln(w)

	if f.limit.IsQuota() {
		row(w, "units in the busiest period", f.most)
	} else {
		row(w, "units in the busiest "+periodName(f.limit.Per), f.most)
		row(w, "burst needed at this rate", f.bursts)
	}

	few := r.share * float64(f.subjects)
	switch {
	case len(f.suggested.list()) == 0 && len(f.butOne.list()) == 0:
		fmt.Fprintln(w, "    no limit that is valid denies so few")
	case few > 0 && few < 1:
		fmt.Fprintf(w, "    %v %% of %s is less than one; choose:\n", 100*r.share, plural(int64(f.subjects), "subject"))
		choices(w, "to deny none    ", f.suggested.list(), func(suggestion) string { return "" })
		// If several subjects need the same, no limit denies only one.
		one := slices.DeleteFunc(f.butOne.list(), func(s suggestion) bool { return s.denied != 1 })
		choices(w, "to deny only one", one, func(s suggestion) string { return subjectName(clip(s.subject)) })
	default:
		choices(w, "suggested", f.suggested.list(), func(s suggestion) string { return "denies " + atMost(s, f.subjects) })
	}

	if f.dropped > 0 {
		fmt.Fprintf(w, "    not included: %s of further subjects\n", plural(f.dropped, "request"))
	}
}

// choices prints limits to choose from, and the effect of each.
func choices(w io.Writer, title string, list []suggestion, effect func(suggestion) string) {
	width := len(title)
	for _, s := range list {
		line := fmt.Sprintf("    %-*s  %-24v %s", width, title, s, effect(s))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		title = "or"
	}
}

// atMost returns the subjects, of that many, to which a limit denies something.
func atMost(s suggestion, subjects int) string {
	switch s.denied {
	case 0:
		return "none of them"
	case 1:
		return fmt.Sprintf("at most %s of them: %s", withPercent(1, int64(subjects)), subjectName(clip(s.subject)))
	}
	return fmt.Sprintf("at most %s of them", withPercent(int64(s.denied), int64(subjects)))
}

// notes prints what qualifies the figures.
func (r *report) notes(w io.Writer) {
	if r.stats.malformed > 0 {
		fmt.Fprintf(w, "\n%s\n", r.malformed())
	}

	if d := r.notAddresses; d.n > 0 {
		fmt.Fprintf(w, "\n%s of the requests have a client that is not an address, such as %q: they count as anonymous.\nFor JSON lines --json-client names the field with the address.\n",
			withPercent(d.n, r.requests), d.example)
	}

	const byDefault = "they get a policy's limit, or its slowest plan if there is no limit."
	if r.withoutPlan.n > 0 {
		fmt.Fprintf(w, "\n%s of the requests have no plan: %s\n--plan names a plan for them, --json-plan the field of JSON lines with the plan.\n",
			withPercent(r.withoutPlan.n, r.requests), byDefault)
	}
	if d := r.unlistedPlans; d.n > 0 {
		fmt.Fprintf(w, "\n%s of the requests have a plan that no policy lists, such as %q: %s\n", withPercent(d.n, r.requests), d.example, byDefault)
	}

	if r.late > 0 {
		fmt.Fprintf(w, "\n%s of the requests are earlier than the one before them, by up to %v.\nThey count at the time of that one.\n",
			withPercent(r.late, r.requests), r.latest)
		if r.latest > tooLate {
			fmt.Fprintln(w, "That is a lot, and causes denials. If a file contains several logs, give them one by one.")
		}
	}

	if len(r.limiters) > 0 {
		fmt.Fprint(w, "\nThe policies of all limiters count as one limiter's: a request that one denies is charged to none.\n")
	}

	if r.requests > 0 && !r.stats.subSecond {
		fmt.Fprint(w, "\nThe log has whole seconds: requests of one second count as if they came at once,\nso a burst smaller than the requests of a second denies more here than it would.\n")
	}

	if r.subjectsLeft == 0 {
		fmt.Fprintf(w, "\nThere are more than %s subjects over all policies. The others are not in the percentiles,\nand may have shared a bucket, as in a full Memory store.\n", grouped(maxSubjects))
	}

	if r.err != nil {
		fmt.Fprintf(w, "\nSome requests could not be decided: %v\n", r.err)
	}
}

// tooLate is longer than requests take, which are logged when they end.
const tooLate = 10 * time.Minute

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(n) + " " + what
}

// withPercent returns n and its percentage of the whole.
func withPercent(n, whole int64) string {
	if n == 0 || whole == 0 {
		return grouped(n)
	}
	percent := strconv.FormatFloat(100*float64(n)/float64(whole), 'f', 2, 64)
	if percent == "0.00" {
		percent = "under 0.01"
	}
	return fmt.Sprintf("%s (%s %%)", grouped(n), percent)
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// periodName returns "minute", as limits are written.
func periodName(per time.Duration) string {
	_, name, _ := strings.Cut(gcra.Limit{Count: 1, Per: per}.String(), "/")
	return name
}
