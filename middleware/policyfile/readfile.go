package policyfile

import (
	"fmt"
	"io"
	"os"
)

// maxSize is the most bytes of a file; see also maxTokens.
const maxSize = 512 << 10

// readFile reads at most one byte more than maxSize, which shows that the file is
// too large.
func readFile(path string) ([]byte, error) {
	// Before Open, which would wait for the writer of a named pipe.
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("policyfile: %s is a directory, a named pipe or a device; want a regular file or a link to one", path)
	}

	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}
