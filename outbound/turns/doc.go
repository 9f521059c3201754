// Package turns makes many processes take turns: callers of an API with a limit wait
// until they may call.
//
//	partner := turns.Turns{Store: store, Charges: []gcra.Charge{
//		{Subject: "account", Policy: "partner", Limit: gcra.PerSecond(5).WithBurst(1)},
//	}}
//	err := partner.Do(ctx, call)
//
// [Wait] waits for a turn, and [Turns] keeps the store and the charges in one value. All processes
// that share the store take turns, usually in the order in which callers ask. A server that limits
// its clients does not need them.
package turns

// Where to change what: turns.go is the value, wait.go the queue, and sleep.go sleeps to a tenth of a
// millisecond where the system can.
