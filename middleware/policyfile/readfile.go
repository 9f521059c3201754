package policyfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxSize bounds what is read of a file; see also maxTokens.
const maxSize = 64 << 10

// readFile reads no more than shows that a file is too large.
func readFile(path string) (data []byte, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("policyfile: %w", err)
		}
	}()
	// To open a device may set it off, so what is there is looked at first.
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

// open opens a regular file, and does not wait for a named pipe to have a writer
// if that has come in between.
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

// regular is nil for a regular file, and else says what is there.
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
