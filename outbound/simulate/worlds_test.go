package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Adaptive keeps what is promised in every world, apart from those that give a reason. It plays one
// seed, without the worlds of days; with RATELIMIT_LONG set, it plays all with three seeds.
func TestWorlds(t *testing.T) {
	seeds, long := 1, os.Getenv("RATELIMIT_LONG") != ""
	if long {
		seeds = 3
	}

	for i := range worlds {
		w := &worlds[i]
		if w.days() && !long {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := standing{w, make([][len(contestants)]result, seeds)}
			for seed := range s.seeds {
				s.seeds[seed][0] = w.play(1+uint64(seed), contestants[0].make)
			}
			if missed := s.missed(w.kept()); missed != "" {
				t.Errorf("got %+v; want bounds that are kept, not %s", s.seeds, missed)
			}
		})
	}
}

// Where a bucket is too small to keep the bounds, clients that know its rate and their number do not
// keep them either.
func TestSmallBuckets(t *testing.T) {
	played := 0
	for _, w := range worlds {
		if w.why != small {
			continue
		}
		played++
		for seed := range uint64(3) {
			if r := w.play(1+seed, newSteady); r.late <= told.late || r.share >= told.share {
				t.Errorf("%s: got %+v; want more than 5 %% denied and less than 95 %% used", w.name, r)
			}
		}
	}
	if played != 2 {
		t.Errorf("got %d worlds; want 2", played)
	}
}

// The flags make one world, and its table has it.
func TestOneWorld(t *testing.T) {
	s, err := readSettings(strings.Fields("-limit 60/minute -window fixed -fields x -lie day -bare -clients 4 -processes 2 -join 1 -leave 1"))
	if err != nil {
		t.Fatal(err)
	}
	var table, progress bytes.Buffer
	if err := simulate(&table, &progress, s); err != nil {
		t.Fatal(err)
	}

	const name = "60/minute fixed x bare lie day, 4 in 2, 1 join, 1 leave"
	if !strings.Contains(table.String(), name) || !strings.Contains(progress.String(), "1/1 "+name) {
		t.Errorf("got\n%s\nand\n%s\nwant %q in both", &table, &progress, name)
	}
}

// Clients that share a pacer have the bounds of one client, and none for how evenly they are served.
func TestClientsOfOneProcess(t *testing.T) {
	s, err := readSettings(strings.Fields("-limit 10/second -fields none -bare -clients 5 -processes 1"))
	if err != nil {
		t.Fatal(err)
	}
	var table, progress bytes.Buffer
	if err := simulate(&table, &progress, s); err != nil {
		t.Fatal(err)
	}

	rows := strings.Split(strings.TrimSpace(table.String()), "\n")
	if row := rows[len(rows)-1]; !strings.Contains(row, " 5, 90, +Inf ") || strings.Contains(row, "most/least") {
		t.Errorf("got %q; want 5, 90, +Inf, and no bound that is missed", row)
	}
}

// A world that misses a bound with one of its seeds says why.
func TestMissed(t *testing.T) {
	w := worlds[0]
	w.name, w.why = "a world", "of chance"
	kept := [len(contestants)]result{{share: 100, uneven: 1}}
	s := standing{&w, [][len(contestants)]result{kept, {{denied: 6, late: 6, share: 90, uneven: 4}, {denied: 5}}}}
	var table bytes.Buffer
	if err := printWorlds(&table, []standing{s}, 1); err != nil {
		t.Fatal(err)
	}
	if want := "a world misses late, share, most/least: of chance."; !strings.Contains(table.String(), want) {
		t.Errorf("got\n%s\nwant %q", &table, want)
	}
	if got := s.missed(bounds{late: 7, share: 80, uneven: never}); got != "" {
		t.Errorf("got %q; want nothing", got)
	}
}
