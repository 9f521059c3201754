package inspect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// view is what is shown, as a page or as JSON.
type view struct {
	Window    seconds   `json:"window_seconds"`
	Step      seconds   `json:"step_seconds"`
	Watched   seconds   `json:"watched_seconds"` // since the Inspector was made
	Decisions decisions `json:"decisions"`
	Policies  []policy  `json:"policies"`
	Store     store     `json:"store"`
	Subject   *standing `json:"subject,omitempty"`
}

// decisions are those of the window.
type decisions struct {
	Total    int64  `json:"total"`
	Refused  int64  `json:"refused"`
	Degraded int64  `json:"degraded"`                  // a policy could not be decided as asked
	Reason   string `json:"degraded_reason,omitempty"` // why, the last time
}

// policy is a policy and what it has decided in the window.
type policy struct {
	Name      string   `json:"name"`
	InForce   bool     `json:"in_force"` // false for one that a reload has taken away
	Limit     string   `json:"limit,omitempty"`
	LimitFor  bool     `json:"limit_for"` // by request: Limits are those that were seen
	Limits    []string `json:"limits,omitempty"`
	Routes    []string `json:"routes"` // empty for every request
	CostFor   bool     `json:"cost_for"`
	Skips     bool     `json:"skips"`
	Shadow    bool     `json:"shadow"`
	MaxDelay  seconds  `json:"max_delay_seconds"`
	OnFailure string   `json:"on_failure,omitempty"`

	Allowed  int64 `json:"allowed"`
	Refused  int64 `json:"refused"`
	Shadowed int64 `json:"shadow_refused"`
	Chart    chart `json:"chart"`

	MostRefused []offender `json:"most_refused"`
}

// offender is a subject that was refused often, counted as package doc says.
type offender struct {
	Subject string `json:"subject"`
	Cut     bool   `json:"cut,omitempty"` // it is longer than is kept
	AtLeast int64  `json:"at_least"`
	AtMost  int64  `json:"at_most"`
}

// store is how the store is.
type store struct {
	Kind    string   `json:"kind"`
	Recent  *trips   `json:"recent,omitempty"` // in the window; nil without Stats
	Total   *trips   `json:"total,omitempty"`  // since the store's first use
	Servers []server `json:"servers,omitempty"`
}

// OneServer reports whether no other server sees what the store holds.
func (s store) OneServer() bool { return s.Kind == "Memory" || s.Kind == "*slidinglog.Memory" }

type trips struct {
	Trips    int64   `json:"trips"`
	MeanTime seconds `json:"mean_trip_seconds"`
	MeanSize float64 `json:"mean_batch"`
	Mirrored int64   `json:"refused_without_trip"`
	Failures int64   `json:"failures"`
}

type server struct {
	Server  string                  `json:"server"`
	Breaker redisstore.BreakerState `json:"breaker"` // as text
}

// Time and Size are for the page: without trips there is no mean.
func (t *trips) Time() string {
	if t.Trips == 0 {
		return "–"
	}
	return human(t.MeanTime)
}

func (t *trips) Size() string {
	if t.Trips == 0 {
		return "–"
	}
	return strconv.FormatFloat(t.MeanSize, 'f', 1, 64)
}

// Meaning explains the state of a breaker.
func (s server) Meaning() string {
	return map[redisstore.BreakerState]string{
		redisstore.BreakerClosed:   ": in use",
		redisstore.BreakerOpen:     ": left alone for a while, as it has failed",
		redisstore.BreakerHalfOpen: ": tried again",
	}[s.Breaker]
}

// seconds is a time that JSON has as a number of seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

const mostRefused = 8 // subjects of a policy that are shown

// see takes all of it in, but for the subject.
func (i *Inspector) see() *view {
	c := &i.record
	now := c.step()
	c.turn(now)
	v := &view{
		Window:   seconds(window),
		Step:     seconds(step),
		Watched:  seconds(c.now().Sub(c.start)),
		Policies: []policy{},
		Store:    i.seeStore(now),
	}
	for _, n := range c.decisions.recent(now) {
		v.Decisions.Total += n[allowed] + n[refused]
		v.Decisions.Refused += n[refused]
	}
	for _, n := range c.degraded.recent(now) {
		v.Decisions.Degraded += n[allowed] + n[refused]
	}
	if v.Decisions.Degraded > 0 {
		v.Decisions.Reason = c.reason()
	}
	left := maps.Clone(*c.policies.Load())
	for _, p := range i.current() {
		v.Policies = append(v.Policies, describe(&p, left[p.Name], now))
		delete(left, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		gone := policy{Name: name, Routes: []string{}}
		gone.count(left[name], now)
		v.Policies = append(v.Policies, gone)
	}
	return v
}

func describe(p *middleware.Policy, s *series, now int64) policy {
	d := policy{
		Name: p.Name, InForce: true, LimitFor: p.LimitFor != nil, Routes: append([]string{}, p.Routes...),
		CostFor: p.Cost != nil, Skips: p.Skip != nil, Shadow: p.Shadow, MaxDelay: seconds(p.MaxDelay),
		OnFailure: failureModes[p.OnFailure],
	}
	if p.LimitFor == nil {
		d.Limit = p.Limit.String()
	} else if s != nil {
		for _, l := range s.limits.limits() {
			d.Limits = append(d.Limits, l.String())
		}
	}
	d.count(s, now)
	return d
}

var failureModes = map[middleware.FailureMode]string{
	middleware.FailLocal: "local", middleware.FailOpen: "open", middleware.FailClosed: "closed",
}

// count adds what the policy has decided, nothing if it has no series.
func (p *policy) count(s *series, now int64) {
	p.MostRefused = []offender{}
	if s == nil {
		return
	}
	for i, n := range s.recent(now) {
		p.Allowed += n[allowed]
		p.Refused += n[refused]
		p.Shadowed += n[shadowed]
		p.Chart.Allowed[i], p.Chart.Refused[i], p.Chart.Shadowed[i] = n[allowed], n[refused], n[shadowed]
	}
	for _, r := range s.refused.top(now, mostRefused) {
		p.MostRefused = append(p.MostRefused, offender{r.subject, r.cut, r.atLeast, r.atMost})
	}
}

func (i *Inspector) seeStore(now int64) store {
	s := store{Kind: kind(i.store)}
	if i.record.stats == nil {
		return s
	}
	total := i.record.stats()
	s.Recent, s.Total = tripsOf(i.record.recentStats(now, total)), tripsOf(total)
	for _, one := range total.Servers {
		s.Servers = append(s.Servers, server(one))
	}
	return s
}

func kind(s gcra.Store) string {
	switch s.(type) {
	case *gcra.Memory:
		return "Memory"
	case *redisstore.Store:
		return "Redis"
	default:
		return fmt.Sprintf("%T", s)
	}
}

func tripsOf(s redisstore.Stats) *trips {
	t := &trips{Trips: s.Batches, Mirrored: s.CachedDenials, Failures: s.FailedBatches}
	if s.Batches > 0 {
		t.MeanTime = seconds(s.BatchTime / time.Duration(s.Batches))
		t.MeanSize = float64(s.Operations) / float64(s.Batches)
	}
	return t
}
