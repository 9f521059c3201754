package replay

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lineAt returns a line of second n, identified by its path.
func lineAt(n int, name string) string {
	at := time.Date(2026, 11, 20, 0, 0, n, 0, time.UTC)
	return fmt.Sprintf("192.0.2.7 - - [%s] \"GET /%s HTTP/1.1\" 200 1\n", at.Format(commonTime), name)
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// write writes the contents to files and returns their names.
func write(t *testing.T, contents ...string) (names []string) {
	t.Helper()
	dir := t.TempDir()
	for i, content := range contents {
		name := filepath.Join(dir, fmt.Sprintf("%d.log", i))
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// readAll reads logs to the end and returns the paths in order.
func readAll(t *testing.T, stdin string, names ...string) (paths []string, s logStats) {
	t.Helper()
	f := newFields()
	f.prepare()
	sources, err := openAll(names, strings.NewReader(stdin), f, func(int) {})
	if err != nil {
		t.Fatal(err)
	}

	l := read(t.Context(), sources)
	for b := range l.batches {
		for _, e := range b.entries {
			paths = append(paths, strings.TrimPrefix(e.url.Path, "/"))
		}
		s = b.stats
		l.release(b)
	}
	return paths, s
}

// Files of a rotated log, in any order and partly compressed, and the log of another server
// are read as one.
func TestLogsAreMerged(t *testing.T) {
	newest := lineAt(7, "7") + lineAt(9, "9")
	middle := zipped(t, lineAt(4, "4")+lineAt(6, "6"))
	oldest := zipped(t, lineAt(1, "1")) + zipped(t, lineAt(3, "3")) // joined, as cat does
	other := `{"time":"2026-11-20T00:00:02.5Z","client":"192.0.2.8","method":"GET","path":"/2.5"}` + "\n" + lineAt(8, "8")
	files := write(t, newest, middle, oldest, other, "")
	got, s := readAll(t, lineAt(5, "5"), append(files, "-")...)
	if want := []string{"1", "2.5", "3", "4", "5", "6", "7", "8", "9"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	if s.lines != 9 || s.malformed != 0 || s.err != nil || !s.subSecond {
		t.Errorf("got %+v; want 9 lines, some with parts of a second", s)
	}
}

// Entries of one file stay in the order of its lines, whatever their times.
func TestLogsKeepTheOrderOfLines(t *testing.T) {
	got, _ := readAll(t, "", write(t, lineAt(5, "a")+lineAt(1, "b")+lineAt(9, "c"), lineAt(7, "d"))...)
	if want := []string{"a", "b", "d", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestLogsContinueAfterMistakes(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	log := lineAt(1, "1") + "\n   \nnonsense\x1b[2J\n" + long + "\n" + lineAt(2, "2") + "3\r\n4\n{}\n" +
		strings.TrimSuffix(lineAt(3, "3"), "\n")
	names := write(t, log)

	got, s := readAll(t, "", names...)
	if want := []string{"1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}

	if s.lines != 8 || s.malformed != 5 || len(s.examples) != maxExamples {
		t.Errorf("got %d lines, %d malformed, %d of them shown; want 8, 5, %d", s.lines, s.malformed, len(s.examples), maxExamples)
	}

	for i, want := range []string{":4: no [20/Nov", ":5: longer than 65536 bytes", ":7: no [20/Nov"} {
		if !strings.HasPrefix(s.examples[i], names[0]+want) {
			t.Errorf("got %q; want %s%s", s.examples[i], names[0], want)
		}
	}
	for _, text := range s.examples {
		if strings.Contains(text, "\x1b") || len(text) > 400 {
			t.Errorf("got %q; want it short and without control characters", text)
		}
	}
}

// A file that ends too early gives the entries it has, and the others are read.
func TestLogsOfDamagedFiles(t *testing.T) {
	whole := zipped(t, strings.Repeat(lineAt(1, "1"), 2000))
	names := write(t, whole[:len(whole)-12], lineAt(2, "2"))
	got, s := readAll(t, "", names...)
	if s.err == nil || !strings.Contains(s.err.Error(), names[0]+", after line ") || !strings.Contains(s.err.Error(), "ends too early") {
		t.Errorf("got %v; want an error with the name of the file", s.err)
	}
	if len(got) < 100 || got[len(got)-1] != "2" {
		t.Errorf("got %d entries, the last %q; want some of the first file and that of the second", len(got), got[len(got)-1:])
	}
}

func TestOpenMistakes(t *testing.T) {
	good := write(t, lineAt(1, "1"), "\x1f\x8bx")
	for _, c := range []struct{ name, want string }{
		{filepath.Join(t.TempDir(), "none.log"), "none.log"},
		{t.TempDir(), "is a directory; want its log files"},
		{good[1], "begins like gzip"},
	} {
		if _, err := openAll([]string{good[0], c.name}, nil, newFields(), func(int) {}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v; want %q", c.name, err, c.want)
		}
	}
}

// The progress bar gets all bytes, as they are in the file.
func TestOpenMeters(t *testing.T) {
	log := zipped(t, strings.Repeat(lineAt(1, "1"), 5000))
	total := 0
	sources, err := openAll(write(t, log), nil, newFields(), func(n int) { total += n })
	if err != nil {
		t.Fatal(err)
	}
	for range read(t.Context(), sources).batches {
	}
	if total != len(log) {
		t.Errorf("got %d bytes; want %d", total, len(log))
	}
}

// writeIn writes a file, and replaces one of the same name.
func writeIn(t rapidOrTest, dir, content string) string {
	t.Helper()
	name := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}
