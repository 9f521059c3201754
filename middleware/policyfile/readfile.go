package policyfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxSize is the most bytes of a file; see also maxTokens.
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

// readRegular does not wait for the writer of a named pipe.
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
	if mode := info.Mode(); !mode.IsRegular() {
		return nil, fmt.Errorf("%s is %s; want a regular file or a link to one", path, special(mode))
	}
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// special says what a file is that can be opened and is not regular.
func special(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	}
	return "a device"
}
