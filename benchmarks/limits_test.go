package main

import "time"

// limit is a limit as every contestant can be given it: count units per period,
// and no more than burst at once. Fixed windows have no burst of their own and
// allow burst units per period.
type limit struct {
	count, burst int64
	per          time.Duration
}

// emission is the time in which one unit comes back.
func (l limit) emission() time.Duration { return l.per / time.Duration(l.count) }

const month = 30 * 24 * time.Hour

var (
	// roomy is never reached here, and slow enough (a unit every 2.6 s) that a
	// key in use stays alive, as the key of a client does that is worth limiting.
	roomy = limit{count: 1_000_000, burst: 1_000_000, per: month}

	// endless is for a single hot key, which would use up a roomy limit: 1,000,000
	// a second, and a burst that outlasts the program.
	endless = limit{count: 1_000_000, burst: 1_000_000_000_000, per: time.Second}

	// lasting keeps a key alive for hours after one check (a unit every 7.2 h), so
	// that a million keys can be there at once.
	lasting = limit{count: 1000, burst: 1000, per: 10 * month}

	// window is a limit that a sliding log can be given, of which its keys here have
	// some dozens of checks in their windows.
	window = limit{count: 1000, burst: 1000, per: time.Minute}

	// tight is for correctness: 20 pass, and the next comes after three minutes.
	tight = limit{count: 20, burst: 20, per: time.Hour}
)

// subjects are n names of clients, all of one length.
func subjects(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = subject(i)
	}
	return all
}

const (
	subjectPrefix = "user:"
	subjectDigits = 8
)

func subject(i int) string {
	var b [len(subjectPrefix) + subjectDigits]byte
	copy(b[:], subjectPrefix)
	writeSubject(b[:], i)
	return string(b[:])
}

// writeSubject puts the number i into a name that is already there.
func writeSubject(b []byte, i int) {
	for d := len(b) - 1; d >= len(subjectPrefix); d-- {
		b[d] = byte('0' + i%10)
		i /= 10
	}
}
