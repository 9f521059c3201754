package histories

import "math"

// The variables of a zone: 0, the time of the last call by the clock of Redis, and the
// TATs of a subject's buckets, in ticks.
const (
	zero = iota
	now
	firstTAT
	variables = firstTAT + policies
)

// A zone is a set of values of the variables: [i][j] is the largest difference between
// variables i and j. Such sets are exact for what the algorithm does, which only compares
// times and adds constants. They are the zones of timed automata (D. Dill, Timing
// assumptions and verification of finite-state concurrent systems, 1989).
//
// A zone has its tightest bounds: no [i][j] is more than [i][k] + [k][j].
type zone [variables][variables]int64

const unbounded = math.MaxInt64 / 4

// fresh is the zone of full buckets at an unknown time: their TATs are long ago.
func fresh() (z zone) {
	z.elapse()
	return z
}

// with returns the zone in which also i - j <= most; false if it is empty.
func (z zone) with(i, j int, most int64) (zone, bool) {
	if z[j][i]+most < 0 {
		return z, false
	}
	if most >= z[i][j] {
		return z, true
	}
	z[i][j] = most
	for a := range variables {
		for b := range variables {
			z[a][b] = min(z[a][b], plus(z[a][i], plus(z[j][b], most)))
		}
	}
	return z, true
}

// within returns the zone in which also i - j is in [least, most].
func (z zone) within(i, j int, least, most int64) (zone, bool) {
	z, some := z.with(i, j, most)
	if !some {
		return z, false
	}
	return z.with(j, i, -least)
}

// elapse lets time pass.
func (z *zone) elapse() {
	for j := range variables {
		if j != now {
			z[now][j] = unbounded
		}
	}
}

// set sets variable i to variable j and n.
func (z *zone) set(i, j int, n int64) {
	for k := range variables {
		if k != i {
			z[i][k], z[k][i] = plus(z[j][k], n), plus(z[k][j], -n)
		}
	}
	z[i][j], z[j][i] = n, -n
}

// add adds n to variable i.
func (z *zone) add(i int, n int64) {
	for k := range variables {
		if k != i {
			z[i][k], z[k][i] = plus(z[i][k], n), plus(z[k][i], -n)
		}
	}
}

// forget allows every value of variable i.
func (z *zone) forget(i int) {
	for k := range variables {
		if k != i {
			z[i][k], z[k][i] = unbounded, unbounded
		}
	}
}

func plus(a, n int64) int64 {
	if a >= unbounded/2 {
		return unbounded
	}
	return a + n
}
