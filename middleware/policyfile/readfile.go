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
	defer func() {
		if err != nil {
			err = fmt.Errorf("policyfile: %w", err)
		}
	}()

	// Opening a device may have effects, so check before opening.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkRegular(path, info); err != nil {
		return nil, err
	}

	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// openRegular opens a regular file. It does not wait for a writer if a named pipe
// has taken the file's place since the check.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, err
	}
	return f, nil
}

// checkRegular returns an error unless the file is regular.
func checkRegular(path string, info fs.FileInfo) error {
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
