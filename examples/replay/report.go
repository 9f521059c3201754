package main

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

// mostNamed is how many of the most refused subjects are named.
const maxNamed = 5

// report is what is printed in the end.
type report struct {
	*player
	seen    logStats
	stopped bool
	share   float64 // of subjects that a suggested limit may refuse something
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
	fmt.Fprintf(w, "%s in %s", plural(r.requests, "request"), plural(r.seen.lines, "line"))
	if r.requests > 0 {
		fmt.Fprintf(w, ", %s to %s", r.at(r.first).Format(form), r.at(r.clock).Format(form))
	}
	fmt.Fprintf(w, "\n%s of the requests would have been refused\n", withPercent(r.denied, r.requests))
}

// malformed tells of the lines that could not be read.
func (r *report) malformed() string {
	text := withPercent(r.seen.malformed, r.seen.lines) + " of the lines could not be read:"
	for _, line := range r.seen.examples {
		text += "\n  " + line
	}
	if r.seen.malformed > int64(len(r.seen.examples)) {
		text += "\n  and so on"
	}
	return text
}

// nothing says why nothing was replayed.
func (r *report) noRequests() error {
	switch {
	case r.seen.lines > 0:
		return errors.New("no request in the log; " + r.malformed())
	case r.seen.err == nil:
		return errors.New("the log is empty")
	}
	return nil
}

func (r *report) at(micros int64) time.Time { return time.UnixMicro(micros).In(r.seen.zone) }

func (r *report) policy(w io.Writer, t *tally) {
	fmt.Fprintf(w, "policy %s", t.policy.Name)
	if t.policy.Shadow {
		fmt.Fprint(w, " (shadow)")
	}
	if t.requests == 0 {
		fmt.Fprintln(w, ": no request is for it")
		return
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  requests      %s\n", grouped(t.requests))
	if t.anonymous > 0 {
		fmt.Fprintf(w, "  of nobody     %s, all on one bucket\n", withPercent(t.anonymous, t.requests))
	}
	fmt.Fprintf(w, "  refused       %s\n", withPercent(t.denied, t.requests))
	if t.delayed > 0 {
		fmt.Fprintf(w, "  delayed       %s\n", withPercent(t.delayed, t.requests))
	}
	title := "most refused"
	for _, c := range t.top.first(maxNamed) {
		fmt.Fprintf(w, "  %-12s  %s  %s\n", title, subjectName(c.name), times(c))
		title = ""
	}
	if t.deniedByOthers > 0 {
		fmt.Fprintf(w, "  by others     %s refused, which count below as if they had passed\n", withPercent(t.deniedByOthers, t.requests))
	}
	for _, m := range t.meters {
		r.limit(w, m.summarize(r.share))
	}
}

func subjectName(key string) string {
	if key == "" {
		return "nobody"
	}
	return plain(key) // whatever a client has put there
}

func times(c count) string {
	if c.inherited == 0 {
		return grouped(c.n)
	}
	return fmt.Sprintf("%s to %s", grouped(c.n-c.inherited), grouped(c.n))
}

// table has a column for each of these percentiles over subjects.
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

// limit tells of the subjects under one limit.
func (r *report) limit(w io.Writer, f summary) {
	fmt.Fprintf(w, "  %v: %s, %s refused something\n", f.limit, plural(int64(f.subjects), "subject"), withPercent(int64(f.denied), int64(f.subjects)))
	fmt.Fprintf(w, "    %-29s", "")
	for _, column := range table {
		fmt.Fprintf(w, " %10s", column.title)
	}
	fmt.Fprintln(w)
	row(w, "units in the busiest "+periodName(f.limit.Per), f.most)
	row(w, "burst needed at this rate", f.bursts)
	if few := r.share * float64(f.subjects); few > 0 && few < 1 {
		fmt.Fprintf(w, "    as %v %% of %s is less than one, choose:\n", 100*r.share, plural(int64(f.subjects), "subject"))
		choices(w, "to refuse nobody  ", f.suggested.list(), func(suggestion) string { return "" })
		// Where several subjects are alike, no limit refuses only one.
		one := slices.DeleteFunc(f.butOne.list(), func(s suggestion) bool { return s.denied != 1 })
		choices(w, "to refuse only one", one, func(s suggestion) string { return subjectName(clip(s.subject)) })
	} else {
		choices(w, "suggested", f.suggested.list(), func(s suggestion) string { return "refuses " + atMost(s, f.subjects) })
	}
	if f.dropped > 0 {
		fmt.Fprintf(w, "    not among these: %s of subjects that there was no room for\n", plural(f.dropped, "request"))
	}
}

// choices are limits to choose from, and what each would do.
func choices(w io.Writer, title string, list []suggestion, effect func(suggestion) string) {
	width := len(title)
	for _, s := range list {
		line := fmt.Sprintf("    %-*s  %-24v %s", width, title, s, effect(s))
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		title = "or"
	}
}

// atMost says to whom of that many subjects a limit refuses something.
func atMost(s suggestion, subjects int) string {
	switch s.denied {
	case 0:
		return "none of them"
	case 1:
		return fmt.Sprintf("at most %s of them: %s", withPercent(1, int64(subjects)), subjectName(clip(s.subject)))
	}
	return fmt.Sprintf("at most %s of them", withPercent(int64(s.denied), int64(subjects)))
}

// notes say what to keep in mind about the figures.
func (r *report) notes(w io.Writer) {
	if r.seen.malformed > 0 {
		fmt.Fprintf(w, "\n%s\n", r.malformed())
	}
	if d := r.notAddresses; d.n > 0 {
		fmt.Fprintf(w, "\nThe client of %s of the requests is no address, such as %q: they count as nobody.\nOf JSON lines -json-client names the field that holds the address.\n",
			withPercent(d.n, r.requests), d.example)
	}
	const byDefault = "they have the limit beside a policy's plans, or else that of its slowest plan."
	if r.withoutPlan.n > 0 {
		fmt.Fprintf(w, "\nThe plan of %s of the requests is not told: %s\n-plan names one for them, -json-plan the field of JSON lines that holds it.\n",
			withPercent(r.withoutPlan.n, r.requests), byDefault)
	}
	if d := r.unlistedPlans; d.n > 0 {
		fmt.Fprintf(w, "\nThe plan of %s of the requests is in no policy, such as %q: %s\n", withPercent(d.n, r.requests), d.example, byDefault)
	}
	if r.late > 0 {
		fmt.Fprintf(w, "\n%s of the requests are of an earlier time than the one before them, by up to %v.\nThey count as if they had come with that.\n",
			withPercent(r.late, r.requests), r.latest)
		if r.latest > lateIsWrong {
			fmt.Fprintln(w, "That is a lot, and more is refused for it. Are several logs in one file? Give them one by one.")
		}
	}
	if r.requests > 0 && !r.seen.subSecond {
		fmt.Fprint(w, "\nThe log tells whole seconds: requests of one second count as if they had come at once,\nso a burst below what a second brings refuses more here than it would.\n")
	}
	if r.subjectsLeft == 0 {
		fmt.Fprintf(w, "\nThere are more than %s subjects, keys and policies taken together. The others are not in the percentiles,\nand may have shared a bucket, as in a Memory store that is full.\n", grouped(maxSubjects))
	}
	if r.err != nil {
		fmt.Fprintf(w, "\nSome requests could not be decided: %v\n", r.err)
	}
}

// lateIsWrong is longer than requests take that are logged when they end.
const lateIsWrong = 10 * time.Minute

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return grouped(n) + " " + what
}

// part is n and its percentage of the whole.
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

// periodName is "minute", as limits are written.
func periodName(per time.Duration) string {
	_, name, _ := strings.Cut(gcra.Limit{Count: 1, Per: per}.String(), "/")
	return name
}
