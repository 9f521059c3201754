package main

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// world is a server and its clients. They call without pause.
type world struct {
	name      string
	limit     gcra.Limit
	window    string // gcra, fixed or strict
	fields    string // a form of partner.write, or none
	bare      bool   // denials have no Retry-After
	lie       string // "", or what the fields say: 4000 remaining for ever, or those of a limit per day
	clients   int
	processes int           // that the clients are in, and that share a pacer; 0 means one for each client
	servers   int           // processes of the server, each with a part of the limit; 0 means 1
	join      int           // clients that begin when the others have settled
	leave     int           // clients that end then
	rate      float64       // factor of the limit from then on; 0 means 1
	empty     bool          // the bucket is empty at first
	second    gcra.Limit    // in fixed windows; only draft11 tells of it
	outage    bool          // the server answers 503 for a tenth of the time
	restart   bool          // the server forgets every ten minutes what was used
	slow      bool          // a request takes up to five seconds
	block     time.Duration // after a denial, in which all requests are denied
}

func (w *world) check() error {
	switch {
	case w.clients < 1 || w.clients > 1000:
		return fmt.Errorf("-clients is %d; want 1 to 1000", w.clients)
	case w.processes < 0 || w.processes > w.clients:
		return fmt.Errorf("-processes is %d; want at most the number of clients, %d", w.processes, w.clients)
	case w.join < 0 || w.leave < 0 || w.join+w.leave >= w.clients:
		return fmt.Errorf("-join is %d and -leave is %d; want one client of %d that stays", w.join, w.leave, w.clients)
	case w.limit.Interval() < 100*time.Microsecond || w.limit.Per > 366*day:
		return fmt.Errorf("-limit is %v; want at most 10000 a second, in at most a year", w.limit)
	}
	return nil
}

const latency = 100 * time.Millisecond // and up to half more

func (w *world) capacity() int64 {
	if w.limit.Burst > 0 && w.window == "gcra" {
		return w.limit.Burst
	}
	return w.limit.Count
}

// settled is the time after which clients have found their rates: five periods, at least ten minutes.
func (w *world) settled() time.Duration { return max(5*w.limit.Per, 10*time.Minute) }

// change is when clients join or leave or the limit changes.
func (w *world) change() time.Duration { return w.settled() }

// warm is how long the run takes before its late part.
func (w *world) warm() time.Duration {
	if w.join > 0 || w.leave > 0 || w.rate > 0 {
		return w.change() + w.settled()
	}
	return w.settled()
}

// length returns how long the run takes. Its late part has whole periods, and at least a hundred
// requests of each client.
func (w *world) length() time.Duration {
	late := max(10*time.Minute, 3*w.limit.Per, w.limit.Interval()*time.Duration(100*w.clients))
	return w.warm() + (late+w.limit.Per-1)/w.limit.Per*w.limit.Per
}

func (w *world) factor(since time.Duration) float64 {
	if w.rate > 0 && since >= w.change() {
		return w.rate
	}
	return 1
}

func (w *world) interval(since time.Duration) time.Duration {
	return time.Duration(float64(w.limit.Interval()) / w.factor(since))
}

// result is what a strategy did in a world, in percent of its attempts and of the limit.
type result struct {
	denied, late, share float64
	uneven              float64 // most over least allowed of a client, late
	attempts            int
}

// call is the next step of a client.
type call struct {
	at   time.Duration
	seq  int
	what step
	t    *thread
	got  answer
}

type calls []call

func (c calls) Len() int { return len(c) }
func (c calls) Less(i, j int) bool {
	return c[i].at < c[j].at || c[i].at == c[j].at && c[i].seq < c[j].seq
}
func (c calls) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *calls) Push(x any)   { *c = append(*c, x.(call)) }
func (c *calls) Pop() any {
	old := *c
	x := old[len(old)-1]
	*c = old[:len(old)-1]
	return x
}

// play runs a strategy in a world.
func (w *world) play(seed uint64, newStrategy func(w *world, random *rand.Rand) strategy) result {
	random := rand.New(rand.NewPCG(seed, 2))
	start := time.Unix(origin, 0)
	servers := make([]*partner, max(w.servers, 1))
	for i := range servers {
		servers[i] = newPartner(w, start)
	}

	var todo calls
	seq := 0
	push := func(at time.Duration, t *thread, what step, got answer) {
		heap.Push(&todo, call{at, seq, what, t, got})
		seq++
	}

	// The processes, and the clients in them.
	processes := w.processes
	if processes == 0 {
		processes = w.clients
	}
	shared := make([]strategy, processes)
	for i := range shared {
		shared[i] = newStrategy(w, random)
	}
	end := w.length()
	warm := w.warm()
	until := make([]time.Duration, w.clients)
	for i := range w.clients {
		from := time.Duration(0)
		until[i] = end
		switch {
		case i < w.join:
			from = w.change()
		case i < w.join+w.leave:
			until[i] = w.change()
		}
		push(from, &thread{id: i, process: shared[i%processes]}, idle, answer{})
	}

	jittered := func(t *thread, d time.Duration) time.Duration {
		if _, ours := t.process.(*adaptive); ours {
			return d // has its own
		}
		return d + time.Duration(float64(d)*jitter*random.Float64())
	}

	var attempts, denied, lateAttempts, lateDenied int
	allowed := make([]int, w.clients) // late
	for {
		e := heap.Pop(&todo).(call)
		if e.at > end {
			break
		}

		now, t := start.Add(e.at), e.t
		oneWay := (latency + time.Duration(random.Int64N(int64(latency/2)))) / 2
		if w.slow {
			oneWay = time.Duration(random.Int64N(int64(5*time.Second))) / 2
		}

		switch e.what {
		case idle:
			t.sleeping = jittered(t, t.process.sleep(now, t))
			push(e.at+t.sleeping, t, slept, answer{})

		case slept:
			if again := jittered(t, t.again(now)); again > 0 {
				push(e.at+again, t, slept, answer{})
				continue
			}
			t.attempts++
			push(e.at+oneWay, t, atServer, answer{})

		case atServer:
			a := servers[random.IntN(len(servers))].answer(now, e.at)
			attempts++
			late := e.at > warm
			if late {
				lateAttempts++
			}

			switch {
			case !a.denied && late:
				allowed[t.id]++
			case a.denied && late:
				lateDenied++
				fallthrough
			case a.denied:
				denied++
			}
			push(e.at+oneWay, t, hasAnswer, a)

		case hasAnswer:
			t.process.answered(now, t, e.got)
			t.denied = e.got.denied
			if e.at < until[t.id] {
				push(e.at, t, idle, answer{})
			} else {
				push(end+1, t, idle, answer{})
			}
		}
	}

	r := result{attempts: attempts, denied: percent(denied, attempts), late: percent(lateDenied, lateAttempts)}

	most, least, sum := 0, -1, 0
	for i, n := range allowed {
		if until[i] < end {
			continue
		}
		sum += n
		most = max(most, n)
		if least < 0 || n < least {
			least = n
		}
	}

	interval := w.interval(end)
	if w.second != (gcra.Limit{}) {
		interval = max(interval, w.second.Interval())
	}
	r.share = 100 * float64(sum) * interval.Seconds() / (end - warm).Seconds()
	r.uneven = float64(most) / float64(least)
	return r
}

func percent(part, all int) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}
