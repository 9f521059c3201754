//go:build !linux

package main

import (
	"errors"
	"io"
)

// The proxy of the benchmarks at a distance needs Linux.
func delayingProcess(string, io.Reader, io.Writer) error { return errors.ErrUnsupported }
