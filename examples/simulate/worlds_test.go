package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Adaptive keeps the bounds in every world, apart from those that give a reason: at most as many
// denials as the published strategy, which knows the limit, and at most 5 % after the warm-up; at
// least 95 % of the limit used; no client served more than twice as much as another. With -short the
// worlds with many requests are left out.
func TestWorlds(t *testing.T) {
	played := 0
	for i := range worlds {
		w := &worlds[i]
		if testing.Short() && w.length()/w.limit.Interval() >= 10_000 {
			continue
		}
		played++
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := standing{world: w}
			for k := range 2 { // adaptive and published
				s.results[k] = w.play(1, contestants[k].make)
			}
			if missed := s.missed(s.allow); missed != "" {
				t.Errorf("got %+v; want bounds that are kept, not %s", s.results[0], missed)
			}
		})
	}
	if played < 15 || len(worlds) < 54 {
		t.Errorf("got %d of %d worlds; want at least 15 of 54", played, len(worlds))
	}
}

// The flags make one world, and its table and chart have it.
func TestOneWorld(t *testing.T) {
	s, err := readSettings(strings.Fields("-limit 60/minute -window fixed -fields x -lie day -bare -clients 4 -processes 2 -join 1 -leave 1"))
	if err != nil {
		t.Fatal(err)
	}
	s.out = t.TempDir()
	var table, progress bytes.Buffer
	if err := simulate(&table, &progress, s); err != nil {
		t.Fatal(err)
	}
	const name = "60/minute fixed x bare lie day, 4 in 2, 1 join, 1 leave"
	if !strings.Contains(table.String(), name) || !strings.Contains(progress.String(), "1/1 "+name) {
		t.Errorf("got\n%s\nand\n%s\nwant %q in both", &table, &progress, name)
	}
	for file, magic := range map[string]string{"worlds.png": "\x89PNG", "worlds.svg": "<?xml"} {
		if b, err := os.ReadFile(filepath.Join(s.out, file)); err != nil || !bytes.HasPrefix(b, []byte(magic)) {
			t.Errorf("%s: got %.8q, %v; want %q", file, b, err, magic)
		}
	}
}

// A world that misses a bound says why.
func TestMissed(t *testing.T) {
	s := standing{world: &world{name: "a world", why: "of chance"}}
	s.results[0] = result{denied: 6, late: 6, share: 90, uneven: 3}
	s.results[1] = result{denied: 5}
	var table bytes.Buffer
	if err := printWorlds(&table, []standing{s}); err != nil {
		t.Fatal(err)
	}
	if want := "a world misses denied, late, share, most/least: of chance."; !strings.Contains(table.String(), want) {
		t.Errorf("got\n%s\nwant %q", &table, want)
	}
	if got := s.missed(bounds{denied: 7, late: 7, share: 80, uneven: never}); got != "" {
		t.Errorf("got %q; want nothing", got)
	}
}
