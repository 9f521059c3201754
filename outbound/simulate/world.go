package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// The parameters of the published runs.
const (
	processes    = 2
	threads      = 5 // in each process
	clients      = processes * threads
	requestTakes = 165 * time.Millisecond
	runTakes     = 30 * time.Minute
	clearedAt    = 10             // the clearing run ends when a thread sees so few remaining
	startSleep   = time.Second    // in the clearing run, of strategies that sleep before the first request
	giveUpAfter  = 12 * time.Hour // bounds a clearing run that does not clear
	jitter       = 0.1            // part of a sleep that is added at most
	origin       = 1_800_000_000  // of the virtual clocks, in seconds since 1970
	minSleep     = 0.8            // seconds, of the published strategies
)

// thread is one of the ten clients.
type thread struct {
	id      int
	process strategy
	next    event

	denied bool    // its last answer was a denial
	number int64   // of its request in the queue of an adaptive
	local  float64 // seconds; the sleep value of a published strategy

	attempts int
	sleeping time.Duration // its last sleep
}

// again returns how much longer the thread sleeps, if it has slept at all.
func (t *thread) again(now time.Time) time.Duration {
	if t.sleeping == 0 {
		return 0
	}
	return t.process.again(now, t)
}

// strategy decides when the threads of one process send requests.
type strategy interface {
	// sleep returns how long the thread sleeps before its next request, without jitter.
	sleep(now time.Time, t *thread) time.Duration
	// again returns how much longer the thread sleeps after that sleep.
	again(now time.Time, t *thread) time.Duration
	// answered reports the answer to the request.
	answered(now time.Time, t *thread, a answer)
}

// event is the next step of a thread.
type event struct {
	at   time.Duration // since the start
	seq  int           // order of the events of one moment
	what step
	got  answer
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

type step uint8

const (
	idle      step = iota // ready for the next request
	slept                 // sleep has ended
	atServer              // request is at the server
	hasAnswer             // answer has arrived
)

// outcome is the result of a run.
type outcome struct {
	attempts, denials [clients]int
	longest           time.Duration // sleep, jitter included
	took              time.Duration // until the run was over
}

// retryRate returns the mean over threads of denials / attempts, in percent.
func (o *outcome) retryRate() float64 {
	sum := 0.0
	for i, n := range o.attempts {
		if n > 0 {
			sum += float64(o.denials[i]) / float64(n)
		}
	}
	return 100 * sum / clients
}

// stdev returns the sample standard deviation of the request counts.
func (o *outcome) stdev() float64 {
	mean := 0.0
	for _, n := range o.attempts {
		mean += float64(n) / clients
	}
	sum := 0.0
	for _, n := range o.attempts {
		sum += (float64(n) - mean) * (float64(n) - mean)
	}
	return math.Sqrt(sum / (clients - 1))
}

// run simulates the threads until the time is over or one of them sees at most stopAt
// remaining.
func run(srv *server, newStrategy func() strategy, seed uint64, until time.Duration, stopAt int64) (*outcome, error) {
	random := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	o := new(outcome)
	seq := 0
	push := func(at time.Duration, t *thread, what step, got answer) {
		t.next = event{at, seq, what, got}
		seq++
	}

	all := make([]*thread, 0, clients)
	for range processes {
		s := newStrategy()
		for range threads {
			t := &thread{id: len(all), process: s}
			all = append(all, t)
			push(0, t, idle, answer{})
		}
	}

	for {
		t := all[0] // the thread with the next event; ten need no heap
		for _, other := range all[1:] {
			if other.next.before(&t.next) {
				t = other
			}
		}
		e := t.next
		if e.at > until {
			return o, nil
		}

		now := time.Unix(origin, 0).Add(e.at)
		o.took = e.at
		switch e.what {
		case idle:
			d := t.process.sleep(now, t)
			d += time.Duration(float64(d) * jitter * random.Float64())
			t.sleeping = d
			o.longest = max(o.longest, d)
			push(e.at+d, t, slept, answer{})

		case slept:
			if again := t.again(now); again > 0 {
				again += time.Duration(float64(again) * jitter * random.Float64())
				t.sleeping += again
				o.longest = max(o.longest, t.sleeping)
				push(e.at+again, t, slept, answer{})
				continue
			}
			o.attempts[t.id]++
			t.attempts++
			push(e.at+requestTakes/2, t, atServer, answer{})

		case atServer:
			a, err := srv.handle(now)
			if err != nil {
				return nil, fmt.Errorf("at %v: %w", e.at, err)
			}
			push(e.at+requestTakes-requestTakes/2, t, hasAnswer, a)

		case hasAnswer:
			if e.got.denied {
				o.denials[t.id]++
			}
			t.process.answered(now, t, e.got)
			t.denied = e.got.denied
			if e.got.remaining <= stopAt {
				return o, nil
			}
			push(e.at, t, idle, answer{})
		}
	}
}
