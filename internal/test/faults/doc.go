// Package faults tests the limiter against faults and attacks, each in a test
// of its own with a number, on real servers: what was injected, what the
// limiter did, and how long it took to recover.
//
//	go test ./internal/test/faults                     the short form, with the other tests
//	go test -run TestFault35 ./internal/test/faults    one of them
//	make chaos                                    the long form, which prints a table
//
// The short form asserts counts, states and answers. It asserts no tight time,
// for it must pass on a busy machine. Faults that cannot be tested here are
// listed with the reason in SECURITY.md. Numbers keep their meaning: a number
// that is missing was a test that another package has now.
package faults
