package histories

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A state is one of the sets of values that a subject's buckets may have after some calls.
type state struct {
	zone

	// Bounds of the TATs since the replicas were last known to have all writes: what a
	// failover may go back to.
	replicas    bool
	least, most [policies]int64
}

// model is the algorithm as package gcra documents it, one call after the other. A step
// gives the states that explain what a call was asked and what it has returned.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, o := range history {
			subject := o.Input.(*operation).Charges[0].Subject
			parts[subject] = append(parts[subject], o)
		}
		return slices.Collect(maps.Values(parts))
	},
	Init: func() any { return states{{zone: fresh()}} },
	Step: func(s, input, _ any) (bool, any) {
		var next states
		for _, s := range s.(states) {
			for _, n := range s.after(input.(*operation)) {
				next.add(n)
			}
		}
		return len(next) > 0, next
	},
	Equal: func(a, b any) bool {
		return len(a.(states)) == len(b.(states)) && !slices.ContainsFunc(a.(states), func(s state) bool { return !slices.Contains(b.(states), s) })
	},
	DescribeOperation: func(input, _ any) string { return input.(*operation).String() },
}

// states is what may be after calls of which some were lost.
type states []state

// manyStates are joined, which allows more than is possible. The next results of the
// buckets make it exact again.
const manyStates = 50

// add adds a state that is not part of another.
func (all *states) add(n state) {
	if slices.ContainsFunc(*all, func(s state) bool { return s.joined(n) == s }) {
		return
	}
	*all = slices.DeleteFunc(*all, func(s state) bool { return n.joined(s) == n })
	if *all = append(*all, n); len(*all) > manyStates {
		for _, s := range *all {
			n = n.joined(s)
		}
		*all = states{n}
	}
}

// joined returns the smallest state that has both.
func (s state) joined(other state) state {
	for i := range variables {
		for j := range variables {
			s.zone[i][j] = max(s.zone[i][j], other.zone[i][j])
		}
	}
	for i := range policies {
		s.least[i], s.most[i] = min(s.least[i], other.least[i]), max(s.most[i], other.most[i])
	}
	return s
}

// unknown is what Porcupine says if it takes too long.
const unknown = string(porcupine.Unknown)

// unexplained asks Porcupine for an order of the calls that the model explains. It returns
// "" if there is one, and otherwise the end of the longest order of some calls. Where
// denials may come from a cache, they say nothing.
func unexplained(history []operation, cached bool) string {
	var list []porcupine.Operation
	for i := range history {
		o := &history[i]
		if o.Kind == settle || cached && o.Kind == take && !o.Allowed && !o.Lost {
			continue
		}
		list = append(list, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Call, Return: o.Return})
	}

	answer, info := porcupine.CheckOperationsVerbose(model, list, patience)
	if answer == porcupine.Ok {
		return ""
	}

	var b strings.Builder
	fmt.Fprintf(&b, "Porcupine says %v", answer)

	for _, orders := range info.PartialLinearizationsOperations() {
		if len(orders) < 2 {
			continue // of this subject all calls are explained
		}
		longest := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return len(a) - len(b) })
		fmt.Fprintf(&b, "; %d calls of a subject are explained, the last of them", len(longest))
		for _, o := range longest[max(0, len(longest)-5):] {
			fmt.Fprintf(&b, "\n%v", o.Input)
		}
	}

	return b.String()
}

// after returns the states after an operation.
func (s state) after(o *operation) (next []state) {
	z := s.zone
	z.elapse()
	z, some := z.within(now, zero, o.Call, o.Return)
	if !some {
		return nil
	}

	switch o.Kind {
	case synced:
		s.replicas = true
		for i := range policies {
			s.least[i], s.most[i] = bounds(&z, i)
		}
		return []state{s.with(z)}
	case erased:
		for i := range policies {
			z.set(firstTAT+i, zero, 0) // long ago
		}
		return []state{s.with(z)}
	case rollback:
		for i := range policies {
			z.forget(firstTAT + i)
			var possible bool
			if z, possible = z.within(firstTAT+i, zero, s.least[i], s.most[i]); !possible {
				return nil
			}
		}
		return []state{s.with(z)}
	}

	if o.Lost {
		next = append(next, s) // it has not happened, or was denied
	} else if o.Allowed == slices.ContainsFunc(o.Charges, func(c gcra.Charge) bool { return !c.Result.Allowed }) {
		return nil
	}

	zones := []zone{z}
	for i := range o.Charges {
		p, possible := stepOf(o, &o.Charges[i])
		if !possible {
			return nil
		}

		var after []zone
		for _, z := range zones {
			after = append(after, p.apply(z)...)
		}
		zones = after
	}

	for _, z := range zones {
		next = append(next, s.with(z))
	}
	return next
}

// with returns the state with another zone.
func (s state) with(z zone) state {
	s.zone = z
	for i := range policies {
		if !s.replicas {
			break
		}
		least, most := bounds(&z, i)
		s.least[i], s.most[i] = min(s.least[i], least), max(s.most[i], most)
	}
	return s
}

// bounds are the bounds of a policy's TAT.
func bounds(z *zone, i int) (least, most int64) {
	return -z[zero][firstTAT+i], z[firstTAT+i][zero]
}

func (o *operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "client %d, %d to %d: %s", o.Client, o.Call, o.Return, o.Kind)
	for _, c := range o.Charges {
		fmt.Fprintf(&b, " [%s %s %v cost %d: %+v]", c.Subject, c.Policy, c.Limit, c.Cost, c.Result)
	}
	if o.Lost {
		b.WriteString(" lost")
	}
	return b.String()
}
