package policyfile

import (
	"fmt"
	"io"
	"os"
)

// maxSize is the largest file that Parse accepts.
const maxSize = 512 << 10

// readFile reads at most one byte more than maxSize, which shows that the file is
// too large.
func readFile(path string) ([]byte, error) {
	data, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return data, nil
}

// readRegular does not wait for the writer of a named pipe. It looks at the file that it has
// opened: another may have taken the path meanwhile.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a directory, a named pipe or a device; want a regular file or a link to one", path)
	}
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}
