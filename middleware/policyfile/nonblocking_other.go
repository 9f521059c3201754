//go:build !unix

package policyfile

// nonBlocking is nothing where no named pipe has a place among the files.
const nonBlocking = 0
