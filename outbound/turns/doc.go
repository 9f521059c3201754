// Package turns makes many processes take turns: callers of an API with a limit wait
// until they may call. [Wait] waits for a turn, and [Turns] keeps the store and the
// charges in one value. They are for calls that a program makes; a server that limits
// its clients does not need them.
package turns

// turns.go is the value, wait.go the queue, and sleep.go sleeps to a tenth of a
// millisecond where the system can.
