package histories

import "fmt"

// settlements compares what each request was charged, in the operations of the store that
// it caused, with what its last settlement returned: the cost, less what is missing. It
// skips requests of which an operation was lost.
func settlements(history []operation) (checked int, wrong []string) {
	type request struct {
		client int
		number int64
	}

	charged := map[request]map[string]int64{}
	lost := map[request]bool{}
	last := map[request]operation{}
	for _, o := range history {
		r := request{o.Client, o.Request}
		if o.Request == 0 {
			continue
		}
		lost[r] = lost[r] || o.Lost
		if o.Kind == settle {
			last[r] = o
		}

		for _, c := range o.Charges {
			if charged[r] == nil {
				charged[r] = map[string]int64{}
			}

			switch {
			case o.Kind == take && o.Allowed:
				charged[r][c.Policy] += c.Result.Taken
			case o.Kind == refund:
				charged[r][c.Policy] -= c.Cost
			}
		}
	}

	for r, s := range last {
		if lost[r] {
			continue
		}
		checked++

		for policy, units := range charged[r] {
			if want := s.Cost - s.Missing[policy]; units != want {
				wrong = append(wrong, fmt.Sprintf("client %d, request %d: %s was charged %d; settled for %d without %d", r.client, r.number, policy, units, s.Cost, s.Missing[policy]))
			}
		}
	}

	return checked, wrong
}
