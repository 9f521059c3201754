package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// view is the data of the page, and of its JSON.
type view struct {
	Window    seconds       `json:"window_seconds"`
	Step      seconds       `json:"step_seconds"`
	Watched   seconds       `json:"watched_seconds"` // since the Inspector was created
	Decisions decisions     `json:"decisions"`
	Policies  []policy      `json:"policies"`
	Store     store         `json:"store"`
	Subject   *subjectState `json:"subject,omitempty"`
}

// decisions are counts of the window.
type decisions struct {
	Total    int64  `json:"total"`
	Denied   int64  `json:"denied"`
	Degraded int64  `json:"degraded"`                  // with an Err
	Reason   string `json:"degraded_reason,omitempty"` // the last Err
}

// policy is a policy and its decisions in the window.
type policy struct {
	Name      string   `json:"name"`
	Limit     string   `json:"limit,omitempty"`
	LimitFor  bool     `json:"limit_for"`        // the limit depends on the request
	Limits    []string `json:"limits,omitempty"` // it may be one of these
	Kinds     []string `json:"kinds"`            // of the keys of its first requests since it was loaded, such as "ip"
	Overrides bool     `json:"overrides"`
	Routes    []string `json:"routes"` // empty for every request
	CostFor   bool     `json:"cost_for"`
	Skips     bool     `json:"skips"`
	Shadow    bool     `json:"shadow"`
	MaxDelay  seconds  `json:"max_delay_seconds"`
	MaxDebt   int64    `json:"max_debt"`
	OnFailure string   `json:"on_failure,omitempty"`

	Allowed      int64 `json:"allowed"`
	Denied       int64 `json:"denied"`
	ShadowDenied int64 `json:"shadow_denied"`
	Chart        chart `json:"chart"`

	MostDenied []deniedSubject `json:"most_denied"`
}

// deniedSubject is a subject and how often it was denied.
type deniedSubject struct {
	Subject string `json:"subject"`
	Cut     bool   `json:"cut,omitempty"` // Subject is only the beginning
	AtLeast int64  `json:"at_least"`
}

// store describes the store.
type store struct {
	Kind  string            `json:"kind"`
	Stats *redisstats.Stats `json:"stats,omitempty"` // since the store's first use; nil if it has none
}

// OneServer reports whether the store's state is in this process only.
func (s store) OneServer() bool { return s.Kind == "Memory" || s.Kind == "*slidinglog.Memory" }

// BatchTime is the mean time of a batch, if there has been one.
func (s store) BatchTime() seconds {
	return seconds(s.Stats.BatchTime / time.Duration(s.Stats.Batches))
}

// BatchSize is the mean number of operations in a batch, if there has been one.
func (s store) BatchSize() float64 { return float64(s.Stats.Operations) / float64(s.Stats.Batches) }

// seconds is a duration that JSON has as a number of seconds.
type seconds time.Duration

func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

const maxMostDenied = 8 // subjects shown for a policy

// view returns everything but the subject.
func (i *Inspector) view() *view {
	c := &i.record
	now := c.step()
	c.forget(now)
	v := &view{
		Window:   seconds(window),
		Step:     seconds(step),
		Watched:  seconds(c.now().Sub(c.start)),
		Policies: []policy{},
		Store:    i.storeView(),
	}

	for _, n := range c.decisions.recent(now) {
		v.Decisions.Total += n[allowed] + n[denied]
		v.Decisions.Denied += n[denied]
		v.Decisions.Degraded += n[degraded]
	}
	if v.Decisions.Degraded > 0 {
		v.Decisions.Reason = c.reason()
	}

	policies, _ := i.current()
	for _, p := range policies {
		v.Policies = append(v.Policies, describe(&p, c.policySeries(p.Name), now))
	}

	// Who opens the page looks for what is denied.
	slices.SortStableFunc(v.Policies, func(a, b policy) int {
		return cmp.Or(-cmp.Compare(a.Denied, b.Denied), -cmp.Compare(a.ShadowDenied, b.ShadowDenied))
	})
	return v
}

// describe returns a policy with its decisions.
func describe(p *middleware.Policy, s *series, now int64) policy {
	d := policy{
		Name: p.Name, LimitFor: p.LimitFor != nil, Overrides: p.Override != nil, Routes: append([]string{}, p.Routes...),
		CostFor: p.Cost != nil, Skips: p.Skip != nil, Shadow: p.Shadow, MaxDelay: seconds(p.MaxDelay), MaxDebt: p.MaxDebt,
		OnFailure: p.OnFailure.String(), MostDenied: []deniedSubject{}, Kinds: append([]string{}, p.Kinds()...), // not null in the JSON
	}
	if p.LimitFor == nil {
		d.Limit = p.Limit.String()
	} else {
		for _, l := range p.Limits() {
			d.Limits = append(d.Limits, l.String())
		}
	}

	for i, n := range s.recent(now) {
		d.Allowed += n[allowed]
		d.Denied += n[denied]
		d.ShadowDenied += n[shadowDenied]
		d.Chart.Allowed[i], d.Chart.Denied[i], d.Chart.ShadowDenied[i] = n[allowed], n[denied], n[shadowDenied]
	}
	d.MostDenied = append(d.MostDenied, s.denied.top(maxMostDenied)...)
	return d
}

// storeView describes the store.
func (i *Inspector) storeView() store {
	s := store{Kind: kind(i.store)}
	if described, ok := i.store.(redisstats.Store); ok {
		now := described.Stats()
		s.Stats = &now
	}
	return s
}

func kind(s gcra.Store) string {
	name := fmt.Sprintf("%T", s)
	return cmp.Or(map[string]string{"*gcra.Memory": "Memory", "*redisstore.Store": "Redis"}[name], name)
}
