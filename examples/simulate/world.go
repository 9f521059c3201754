package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// What the published runs had, and so ours.
const (
	processes    = 2
	threads      = 5 // in each process
	clients      = processes * threads
	requestTakes = 165 * time.Millisecond
	runTakes     = 30 * time.Minute
	clearedAt    = 10              // the clearing run ends when a thread sees that few left
	startSleep   = time.Second     // in the clearing run, of strategies that sleep before they ask
	giveUpAfter  = 12 * time.Hour  // a clearing run that never clears
	jitter       = 0.1             // every sleep is longer by 0 to this much of it
	sampleEvery  = 2 * time.Second // of what the charts show
	origin       = 1_800_000_000   // the virtual clocks start at some second
	minSleep     = 0.8             // seconds, of the published strategies
)

// thread is one of the ten that call without pause.
type thread struct {
	id      int
	process strategy
	next    event

	refused bool    // its last answer was a refusal
	local   float64 // seconds; what the published strategies keep from one try to the next

	attempts int
	sleeping time.Duration // its last sleep
}

// strategy is how the threads of one process decide when to ask. They share it.
type strategy interface {
	// sleep is how long the thread sleeps before the request it now wants to
	// send, before jitter.
	sleep(now time.Time, t *thread) time.Duration
	// again is how much longer it sleeps, as it sees things once it has slept.
	again(now time.Time) time.Duration
	// answered tells what came of the request.
	answered(now time.Time, t *thread, a answer)
}

// event is what a thread does next, and when.
type event struct {
	at   time.Duration // since the start
	seq  int           // among those of one moment, first come, first served
	what step
	got  answer
}

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.seq < f.seq
}

type step uint8

const (
	wants step = iota // is free to ask again
	sends             // has slept, and asks
	meets             // its request is at the server
	hears             // has its answer
)

// outcome is what a run showed.
type outcome struct {
	attempts, refusals [clients]int
	longest            time.Duration      // sleep, jitter included
	took               time.Duration      // until the run was over
	samples            [][clients]float64 // seconds that each thread slept last, at every sampleEvery
}

// retryRate is the mean over threads of refused / attempts, in percent.
func (o *outcome) retryRate() float64 {
	sum := 0.0
	for i, n := range o.attempts {
		if n > 0 {
			sum += float64(o.refusals[i]) / float64(n)
		}
	}
	return 100 * sum / clients
}

// stdev is the sample standard deviation of the request counts.
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

// run lets the threads call the server until the time is over or one of them
// sees no more than stopAt left.
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
			push(0, t, wants, answer{})
		}
	}
	for {
		t := all[0] // the one that is next; ten need no heap
		for _, other := range all[1:] {
			if other.next.before(&t.next) {
				t = other
			}
		}
		e := t.next
		if e.at > until {
			return o, nil
		}
		for next := time.Duration(len(o.samples)) * sampleEvery; next <= e.at; next += sampleEvery {
			var s [clients]float64
			for i, t := range all {
				s[i] = t.sleeping.Seconds()
			}
			o.samples = append(o.samples, s)
		}
		now := time.Unix(origin, 0).Add(e.at)
		o.took = e.at
		switch e.what {
		case wants:
			d := t.process.sleep(now, t)
			d += time.Duration(float64(d) * jitter * random.Float64())
			t.sleeping = d
			o.longest = max(o.longest, d)
			push(e.at+d, t, sends, answer{})
		case sends:
			if again := t.process.again(now); again > 0 {
				again += time.Duration(float64(again) * jitter * random.Float64())
				t.sleeping += again
				o.longest = max(o.longest, t.sleeping)
				push(e.at+again, t, sends, answer{})
				continue
			}
			o.attempts[t.id]++
			t.attempts++
			push(e.at+requestTakes/2, t, meets, answer{})
		case meets:
			a, err := srv.ask(now)
			if err != nil {
				return nil, fmt.Errorf("at %v: %w", e.at, err)
			}
			push(e.at+requestTakes-requestTakes/2, t, hears, a)
		case hears:
			if e.got.refused {
				o.refusals[t.id]++
			}
			t.process.answered(now, t, e.got)
			t.refused = e.got.refused
			if e.got.remaining <= stopAt {
				return o, nil
			}
			push(e.at, t, wants, answer{})
		}
	}
}
