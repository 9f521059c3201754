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
func readFile(path string) (data []byte, err error) {
	// Opening a device may have effects, so check before opening.
	if err = checkRegular(path, func() (fs.FileInfo, error) { return os.Stat(path) }); err == nil {
		data, err = readRegular(path)
	}
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return data, nil
}

// readRegular does not wait for a writer if a named pipe has taken the file's place since the check.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := checkRegular(path, f.Stat); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// checkRegular returns an error unless the file is regular.
func checkRegular(path string, stat func() (fs.FileInfo, error)) error {
	info, err := stat()
	if err != nil {
		return err
	}

	var what string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "a special file"
	}

	return fmt.Errorf("%s is %s; want a regular file or a link to one", path, what)
}
