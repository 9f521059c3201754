// Package redisstats says how the servers behind a store are. Packages inspect and otel show it
// without importing a client of Redis.
package redisstats

import (
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// A Store is a [gcra.Store] with statistics, such as package redisstore's.
type Store interface {
	gcra.Store

	// Stats returns what the store has done so far.
	Stats() Stats
}

// Stats counts what a store has done since its first use.
type Stats struct {
	Batches       int64         // batches that Redis answered, also with an error of the script
	Operations    int64         // admissions and refunds in them, each part of a divided one: Operations/Batches is the mean batch size
	BatchTime     time.Duration // total time of these batches
	FailedBatches int64         // batches without an answer, or with an error that concerns the whole server, such as LOADING
	CachedDenials int64         // admissions that were denied without asking Redis, see gcra.Result.Cached
	LocalUnits    int64         // units that Local has granted, as Redis did not answer or a policy failed
	ReportedUnits int64         // of these, units that were charged in Redis later
	LostUnits     int64         // of LocalUnits, those that were given up: more than 65,536 keys had some, or the store was closed
	Instances     int           // stores that share the limits, with this one, as counted last (see gcra.LocalStore); 0 before the first count
	Servers       []ServerState // the single server, or each of several that was used within the last minute, by address
}

// ServerState is the state of one server.
type ServerState struct {
	Server  string // its address as the client has it ("FailoverClient" behind Sentinel); "" before the topology of a cluster is known
	Breaker BreakerState
	Kind    Kind   `json:",omitempty"` // of the keys that one script may have
	Reason  string `json:",omitempty"` // why the last batch failed, and what to look at; "" while the breaker is closed
}

// BreakerState is the state of a circuit breaker. Empty means BreakerClosed.
type BreakerState string

const (
	BreakerClosed   BreakerState = "closed"    // the server is in use
	BreakerOpen     BreakerState = "open"      // it has failed: Take sends it nothing
	BreakerHalfOpen BreakerState = "half-open" // one batch is sent to see whether it answers again
)

// Kind is what a store has learned of the keys that one script may have on a server. Empty means that it is not known:
// batches are then sent as to a server of kind BySubject.
type Kind string

const (
	OneKeyspace Kind = "one keyspace" // all keys: a script decides about all subjects of a batch
	ByNode      Kind = "by node"      // all keys of a node of a cluster, likewise
	BySubject   Kind = "by subject"   // the keys of one subject: a batch is one script for each
	Unusable    Kind = "unusable"     // scripts run away from their keys: the store does not use the server
)
