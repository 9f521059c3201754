package main

import (
	"bytes"
	"strings"
	"testing"
)

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
