//go:build !race

package faults

// raced says that this binary looks for data races.
const raced = false
