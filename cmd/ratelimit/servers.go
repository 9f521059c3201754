package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/published"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// readSaid reads what servers say and their marks, unless somebody else has written more.
var readSaid = redis.NewScript(`
local said = redis.call('MGET', KEYS[1], KEYS[2])
for i = 1, 2 do
  if not said[i] or #said[i] > 40000 then said[i] = '' end
end
return said`)

// known returns the policies of the file of --policies or, without one, those that servers say they
// have: none if they say nothing.
func (c *command) known(ctx context.Context, client redis.UniversalClient, now time.Time) (*policyFile, error) {
	if c.policies != "" {
		return loadPolicies(c.policies, policyfile.Names{})
	}
	said, err := readSaid.Run(ctx, client, []string{c.prefix + published.Suffix, c.prefix + "{instances}"}).StringSlice()
	if err != nil {
		return nil, failed(client, err)
	}

	servers, limiters, wrong := published.Read(said[0], now)
	f := &policyFile{kinds: map[string][]string{}, deaf: map[string]bool{}}
	if wrong != nil {
		f.notef("%v", wrong)
	}
	if len(servers) == 0 {
		return f, nil
	}
	f.from = count(len(servers), "server")
	f.notef("policies as %s said %s ago", f.from, human(now.Sub(servers[0].At)))

	variants := map[string]map[string]int{} // by policy: what it is, and on how many servers
	several := map[string]bool{}            // policies that limiters of one server disagree about
	follows := map[string]bool{}            // policies that follow overrides somewhere, or may
	dropped := 0
	for _, s := range servers {
		own := map[string][]string{} // by policy: what it is on this server
		for _, hash := range s.Limiters {
			if limiters[hash] == nil && hash != "" {
				dropped++
			}
			for _, p := range limiters[hash] {
				f.kinds[p.Name] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(f.kinds[p.Name], p.Kinds))))
				follows[p.Name] = follows[p.Name] || p.Follows || p.LeftOut

				// What differs between servers without being a disagreement.
				p.Kinds, p.Follows = nil, false
				if variants[p.Name] == nil {
					variants[p.Name] = map[string]int{}
				}
				text, _ := json.Marshal(p)
				if is := string(text); !slices.Contains(own[p.Name], is) {
					own[p.Name] = append(own[p.Name], is)
					several[p.Name] = several[p.Name] || len(own[p.Name]) > 1
					variants[p.Name][is]++
				}
			}
		}
	}

	silent := silent(said[1], servers, now)
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		f.add(variants[name], several[name])
		f.deaf[name] = !follows[name] && dropped+silent == 0
	}
	if dropped > 0 {
		f.notef("%s left out, as there is no room for more", count(dropped, "limiter"))
	}
	if silent > 0 {
		f.notef("%s without a word about policies", count(silent, "server"))
	}
	return f, nil
}

// add adds a policy that servers have in these variants, on so many of them; several is whether one server has several.
func (f *policyFile) add(variants map[string]int, several bool) {
	all := slices.SortedFunc(maps.Keys(variants), func(a, b string) int {
		return cmp.Or(variants[b]-variants[a], strings.Compare(a, b))
	})
	plans, words, unsure := map[string]gcra.Limit{}, []string{}, ""
	var first published.Policy
	seen := map[string]bool{}
	for i, text := range all {
		p, on := published.Policy{}, "on "+count(variants[text], "server")
		what := " server"
		if several {
			what, on = " limiter", "on one limiter of "+count(variants[text], "server")
		}
		for seen[on] { // as many have another variant
			on = strings.Replace(on, what, " other"+what, 1)
		}
		seen[on] = true
		_ = json.Unmarshal([]byte(text), &p) // it was made here
		if i == 0 {
			first = p
		}
		if p.LeftOut {
			f.notef("%s: left out, as there is no room for more", p.Name)
		}

		limits := map[string]gcra.Limit{}
		maps.Copy(limits, p.Plans)
		if !slices.Contains(slices.Collect(maps.Values(limits)), p.Limit) && p.Limit != (gcra.Limit{}) && !p.Function {
			limits[""] = p.Limit
		}
		for plan, limit := range limits {
			if len(all) > 1 {
				plan = strings.TrimSpace(plan + " " + on)
			}
			plans[plan] = limit
		}
		words = append(words, oneOfLimits(limits)+" "+on)
		if p.Function {
			words[i], unsure = byFunction+" "+on, byFunction
		}
	}

	if len(words) > 1 {
		unsure = strings.Join(words, ", ")
		who := "servers"
		if several {
			who = "limiters of a server"
		}
		f.notef("%s disagree about %s: %s", who, first.Name, unsure)
	}
	p := middleware.Policy{Name: first.Name, Limit: first.Limit, Shadow: first.Shadow, MaxDebt: first.MaxDebt, MaxDelay: first.MaxDelay, Plans: plans}
	f.policies, f.outlines = append(f.policies, p), append(f.outlines, policyfile.Outline{Policy: p})
	f.unsure = append(f.unsure, unsure)
}

const byFunction = "limit by function"

// silent counts the servers that are running and say nothing.
func silent(marks string, servers []published.Server, now time.Time) (n int) {
	for mark := range strings.SplitSeq(marks, ";") {
		id, till, _ := strings.Cut(mark, "=")
		until, err := strconv.ParseInt(till, 10, 64)
		says := slices.ContainsFunc(servers, func(s published.Server) bool { return s.ID == id })
		if err == nil && now.UnixMilli() < until && !says {
			n++
		}
	}
	return n
}

// oneOfLimits lists limits: "one of free 30/minute, pro 1000/minute".
func oneOfLimits(limits map[string]gcra.Limit) string {
	var all []string
	for _, plan := range slices.Sorted(maps.Keys(limits)) {
		all = append(all, strings.TrimSpace(plan+" "+limits[plan].String()))
	}
	if len(all) > 1 {
		all[0] = "one of " + all[0]
	}
	return strings.Join(all, ", ")
}

// planOf is the name of a plan in words, unless it says on which servers it holds.
func planOf(plan string) string {
	if strings.HasPrefix(plan, "on ") {
		return plan
	}
	return "plan " + plan
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
