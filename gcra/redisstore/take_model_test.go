package redisstore_test

import (
	"slices"
)

// op is an op of a call of take.lua; its header describes it.
type op struct {
	key, params  int
	last, shadow bool
	periods      int // counted from 1; 0 for a rate
}

// params are inc, room, top and unit.
type params [4]int64

// replies is the length of the reply.
func (c call) replies() int {
	if len(c.periods) > 0 {
		return len(c.ops) + 1
	}
	return len(c.ops)
}

// periods are the three beginnings of periods of a quota, and the last end.
type periods [4]int64

// call holds the arguments of take.lua.
type call struct {
	keys    []string
	ops     []op
	params  []params
	periods []periods

	undeclared bool            // the keys are arguments
	elsewhere  map[string]bool // keys of another node
}

// simple returns the ops of the most common batch, which are not sent.
func simple(keys []string) []op {
	var ops []op
	for k := range keys {
		ops = append(ops, op{key: k, last: true})
	}
	return ops
}

// declared are the keys as EVALSHA declares them.
func (c call) declared() []string {
	if c.undeclared {
		return nil
	}
	return c.keys
}

func (c call) args() (args []any) {
	if c.undeclared {
		args = append(args, len(c.keys))
		for _, key := range c.keys {
			args = append(args, key)
		}
	}

	if d := c.params[0]; c.short() {
		if args = append(args, d[0], d[1]); d[2] != d[1] {
			args = append(args, d[2])
		}
		return args
	}

	args = append(args, c.encode())
	for _, d := range c.params {
		args = append(args, d[0], d[1], d[2], d[3])
	}
	for _, p := range slices.Backward(c.periods) {
		args = append(args, p[0], p[1], p[2], p[3])
	}
	return args
}

// short reports whether the call is sent without ops.
func (c call) short() bool {
	d := c.params[0]
	return d[0] > 0 && d[1] >= d[0] && d[3] == 0 && slices.Equal(c.ops, simple(c.keys))
}

func (c call) encode() (ops []byte) {
	for _, o := range c.ops {
		flags, periods := byte(0), max(o.periods-1, 0)
		if o.periods > 0 {
			flags |= 4
		}
		if o.last {
			flags |= 1
		}
		if o.shadow {
			flags |= 2
		}
		ops = append(ops, byte(o.key>>8), byte(o.key), byte(o.params), byte(periods), flags)
	}
	return ops
}

// base is what take.lua takes in place of now for a quota: the end of the current period,
// or of the next one if that has begun before the clock went back. It is not ok if now is
// in none of the periods, or the TAT of one beyond them.
func (p periods) base(now, tat, top int64) (base int64, begun, ok bool) {
	i := 1
	for now >= p[i] {
		i++
	}
	switch {
	case i == 3 || p[i+1] == p[i]:
		return p[i], false, tat-p[i] <= top
	case tat >= p[i+1] && tat-p[i+1] <= top:
		return p[i+1], true, true
	}
	return p[i], false, true
}

// model is take.lua in Go: it changes the TATs of the keys and returns the reply. A
// key that does not exist has no TAT in the map.
func (c call) model(now int64, tats map[string]int64) []int64 {
	const unfit, started = -1 << 52, 1 << 50
	reply := make([]int64, 0, len(c.ops))
	bases := make(map[string]int64) // a key's first op has the base of all
	starts := make(map[string]int64)
	server := now
	first, admitted, here := 0, true, true

	undo := make(map[string]int64) // the TATs before the current admission
	set := func(key string, tat int64) {
		if _, ok := undo[key]; !ok {
			old, ok := tats[key]
			if !ok {
				old = now
			}
			undo[key] = old
		}

		tats[key] = tat
	}

	for i, o := range c.ops {
		key, d := c.keys[o.key], c.params[o.params]
		inc, room, top, unit := d[0], d[1], d[2], d[3]
		tat, ok := tats[key]
		if !ok {
			tat = server
		}

		now, fits := server, true
		if o.periods > 0 {
			p := c.periods[o.periods-1]

			base, known := bases[key]
			begun := false
			switch {
			case server < p[0] || server >= p[3]:
				fits = false
			case known:
				fits = base <= p[3]
			default:
				if base, begun, fits = p.base(server, tat, top); fits {
					bases[key] = base
				}
				if begun {
					starts[key] = started
				}
			}

			now = base
		}

		ahead := min(max(tat-now, 0), top)
		switch {
		case c.elsewhere[key]:
			reply = append(reply, 0)
			here, admitted = false, false
		case !fits:
			reply = append(reply, unfit)
			admitted = false
		default:
			if tat-now > top && inc > 0 && room >= 0 && unit == 0 {
				tats[key] = now + top
				if old, ok := undo[key]; ok {
					undo[key] = min(old, now+top)
				}
			}

			if unit > 0 {
				inc = min(inc, max(room-ahead, 0)/unit*unit)
			}
			reply = append(reply, ahead+starts[key])
			switch {
			case inc > 0 && ahead+inc <= room, inc < 0 && ahead > 0:
				set(key, now+max(ahead+inc, 0))
			case inc > 0 && !o.shadow:
				admitted = false
			}
		}

		if !o.last {
			continue
		}
		if !admitted {
			for key, tat := range undo {
				tats[key] = tat
			}
			for j := first; j <= i; j++ {
				switch {
				case !here:
					reply[j] = -1 << 53
				case reply[j] >= 0:
					reply[j] = -reply[j] - 1
				}
			}
		}

		clear(undo)
		first, admitted, here = i+1, true, true
	}

	if c.replies() > len(reply) {
		reply = append(reply, server)
	}
	return reply
}
