package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine is the most bytes of a line.
const maxLine = 64 << 10

// source reads one log.
type source struct {
	name  string
	lines *bufio.Reader
	file  io.Closer
	line  int64 // number of the last line read
	parser
}

// open opens a file, or standard input for "-". meter is called with the bytes of each read.
func open(name string, stdin io.Reader, f *fields, meter func(int)) (*source, error) {
	s := &source{name: name, parser: parser{fields: f}}

	input := stdin
	if name == "-" {
		s.name = "standard input"
		s.file = io.NopCloser(nil)
	} else {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		if info, err := file.Stat(); err == nil && info.IsDir() {
			file.Close()
			return nil, fmt.Errorf("%s is a directory; want its log files", name)
		}
		input, s.file = file, file
	}

	s.lines = bufio.NewReaderSize(metered{input, meter}, maxLine)
	// The first two bytes of gzip, with which no line begins.
	if magic, _ := s.lines.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(s.lines)
		if err != nil {
			s.file.Close()
			return nil, fmt.Errorf("%s begins like gzip but is not: %w", s.name, err)
		}
		s.lines = bufio.NewReaderSize(unzipped, maxLine)
	}
	return s, nil
}

// openAll opens all files, or none on an error.
func openAll(names []string, stdin io.Reader, f *fields, meter func(int)) (sources []*source, err error) {
	for _, name := range names {
		s, err := open(name, stdin, f, meter)
		if err != nil {
			for _, s := range sources {
				s.file.Close()
			}
			return nil, err
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// metered calls meter with the bytes of each read.
type metered struct {
	io.Reader
	meter func(int)
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.meter(n)
	return n, err
}

// lineError is the error of a line that is not an entry.
type lineError struct {
	cause error
	text  string // the line, clipped
}

func (e *lineError) Error() string { return e.cause.Error() }

// next returns the next entry. The error is a *lineError for a line that is none, io.EOF at
// the end, or an error of reading the file.
func (s *source) next() (entry, error) {
	for {
		line, err := s.lines.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			return entry{}, s.wrapError(err)
		}

		s.line++
		if errors.Is(err, bufio.ErrBufferFull) {
			text := clip(line)
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = s.lines.ReadSlice('\n')
			}
			return entry{}, &lineError{fmt.Errorf("longer than %d bytes", maxLine), text}
		}

		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}

		e, err := s.parse(line)
		if err != nil {
			return entry{}, &lineError{err, clip(line)}
		}
		return e, nil
	}
}

func (s *source) wrapError(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the compressed data ends too early")
	}
	return fmt.Errorf("%s, after line %d: %w", s.name, s.line, err)
}

// mayBlock reports whether reading the next line may block.
func (s *source) mayBlock() bool { return s.lines.Buffered() == 0 }
