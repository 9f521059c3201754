package replay

import (
	"bytes"
	"io"
	"testing"
)

// BenchmarkReplay replays a log of 200,000 lines.
func BenchmarkReplay(b *testing.B) {
	const lines = 200_000
	var log bytes.Buffer
	if err := writeLoad(&log, lines, 20_000); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		err := run(b.Context(), []string{"--policies", "testdata/policies.yaml", "-"}, bytes.NewReader(log.Bytes()), io.Discard, io.Discard)
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(lines)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
