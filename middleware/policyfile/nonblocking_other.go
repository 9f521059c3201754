//go:build !unix

package policyfile

// nonBlocking is not needed where files are never named pipes.
const nonBlocking = 0
