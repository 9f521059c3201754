package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The program prints a row for each algorithm and writes two charts.
func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var out bytes.Buffer
	if err := run([]string{"-out", dir}, &out); err != nil {
		t.Fatal(err)
	}

	for _, row := range []string{
		` +algorithm +edge +steady +two bursts +bytes a key +µs a check`,
		` +GCRA +23 +39 +38 +[0-9]+ +[0-9.]+`,
		` +sliding log +20 +20 +20 +[0-9]+ +[0-9.]+`,
		` +fixed window +40 +20 +40 +[0-9]+ +[0-9.]+`,
	} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(out.String()) {
			t.Errorf("got\n%s\nwant a row %s", out.String(), row)
		}
	}

	picture, err := os.Open(filepath.Join(dir, "algorithms.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	if img, err := png.Decode(picture); err != nil || img.Bounds().Dx() < 600 || img.Bounds().Dy() < 600 {
		t.Errorf("algorithms.png: got %v, %v; want a picture of 600 by 600 or more", img.Bounds(), err)
	}

	drawing, err := os.ReadFile(filepath.Join(dir, "algorithms.svg"))
	if err != nil {
		t.Fatal(err)
	}

	for d := xml.NewDecoder(bytes.NewReader(drawing)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("algorithms.svg: %v", err)
		}
	}

	for _, text := range []string{"GCRA", "sliding log", "fixed window", "limit, 20/10s", "seconds", "bytes a key"} {
		if !strings.Contains(string(drawing), text) {
			t.Errorf("algorithms.svg does not contain %q", text)
		}
	}
}
