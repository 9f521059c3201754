// Package faults holds the limiter against faults and attacks, each of them a
// row with a number, on real servers: what was injected, what the limiter did,
// and how long it took to recover.
//
//	go test ./internal/faults                 the short form, with the other tests
//	make chaos                                the long form, which prints a table
//
// The short form asserts counts, states and answers. It asserts no tight time,
// for it must hold on a busy machine. Rows that cannot be tested here are
// listed with the reason in SECURITY.md.
package faults
