package replay

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/report.txt anew")

// TestMain runs the program if a test asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("REPLAY_TEST_MAIN") != "" {
		if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The whole report of the sample.
func TestReport(t *testing.T) {
	const golden = "testdata/report.txt"
	var out, stderr bytes.Buffer
	err := run(t.Context(), []string{"--policies", "testdata/policies.yaml", "testdata/access.log"}, nil, &out, &stderr)
	if err != nil {
		t.Fatal(err)
	}

	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(golden)
	if err != nil || out.String() != string(want) {
		t.Errorf("got\n%s\nwant (%v, -update writes it)\n%s", &out, err, want)
	}
	if stderr.Len() > 0 {
		t.Errorf("got %q on standard error; want no bar where it is no terminal", &stderr)
	}
}

// docs/rollout.md shows a part of the report.
func TestRollout(t *testing.T) {
	page, err := os.ReadFile("../../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, excerpt, found := bytes.Cut(page, []byte("```text\npolicy "))
	excerpt, _, closed := bytes.Cut(excerpt, []byte("```"))
	if !found || !closed || !bytes.Contains(report, excerpt) {
		t.Errorf("got\n%s\nwant it in\n%s", excerpt, report)
	}
}

func TestCharts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "charts")
	var out strings.Builder
	err := run(t.Context(), []string{"--policies", "testdata/policies.yaml", "--out", dir, "testdata/access.log"}, nil, &out, io.Discard)
	if err != nil {
		t.Fatal(err)
	}

	for name, magic := range map[string]string{"replay.png": "\x89PNG", "replay.svg": "<?xml"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.HasPrefix(b, []byte(magic)) {
			t.Errorf("%s: got %.8q, %v; want %q", name, b, err, magic)
		}
		if !strings.Contains(out.String(), "wrote "+filepath.Join(dir, name)) {
			t.Errorf("got\n%s\nwant it to name %s", &out, name)
		}
	}

	svg, _ := os.ReadFile(filepath.Join(dir, "replay.svg"))
	for _, want := range []string{"denials by policy", "report, 167", "login, 140", "client (shadow), 12", "10:30", "20 November 2026", "@font-face"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the chart does not say %q", want)
		}
	}
}

// A chart of one request to years of requests.
func TestChartsOfAnyLength(t *testing.T) {
	for _, log := range []string{
		lineAt(1, "x"),
		strings.Repeat(lineAt(1, "x"), 5000),
		lineAt(1, "x") + lineAt(90, "x"),
		lineAt(1, "x") + lineAt(3*86_400, "x"),
		lineAt(1, "x") + lineAt(10*365*86_400, "x"),
	} {
		p := played(t, "policies: [{name: a, key: client, limit: 10/minute}]", log)
		if err := saveCharts(io.Discard, t.TempDir(), p, time.UTC); err != nil {
			t.Errorf("%d requests: %v", p.requests, err)
		}

		start := time.UnixMicro(p.timeline.start).UTC()
		spans := p.timeline.spans(lineRequests)
		end := spans[len(spans)-1].to
		if n := len(clockTicks{start}.Ticks(0, end)); n < 1 || n > 15 {
			t.Errorf("%v s from %v: got %d marks on the axis", end, start, n)
		}
	}
}

func TestRunMistakes(t *testing.T) {
	good := write(t, "policies: [{name: a, key: client, limit: 10/minute}]", lineAt(1, "x"), "nonsense\nand more\n", "",
		"policies:\n  - {name: a, key: clint, limit: 10/minute}\n  - {name: a, key: client, limit: ten}\n",
		ofAnotherProgram, "policies: [{name: a, key: client, plans: {free: 1/minute, pro: 2/minute}}, {name: b, key: client, plans: {\"7\": 1/minute, pro: 3/minute}}]")
	policies, log, nonsense, empty, bad, own, plans := good[0], good[1], good[2], good[3], good[4], good[5], good[6]

	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--policies", bad, log}, []string{bad + ":2:20: ", "clint", bad + ":3:"}},
		{[]string{"--policies", "none.yaml", log}, []string{"none.yaml"}},
		{[]string{"--policies", policies, "none.log"}, []string{"none.log"}},
		{[]string{"--policies", policies, nonsense}, []string{"no request in the log", "2 (100.00 %) of the lines could not be read", nonsense + ":1: no [20/Nov"}},
		{[]string{"--policies", policies, empty}, []string{"the log is empty"}},
		{[]string{log}, []string{"--policies is missing; want a file"}},
		{[]string{"--policies", policies}, []string{"no log is given"}},
		{[]string{"--policies", own, log}, []string{own + ":1:", `key is "tenant"`, "--key tenant=user maps", `cost is "rows"`, "--cost rows=10 sets"}},
		{[]string{"--policies", own, "--key", "tenant=address", log}, []string{"--key", "client, user or route"}},
		{[]string{"--policies", own, "--key", "tenant=user", "--key", "tenant=client", log}, []string{"--key", "tenant is repeated"}},
		{[]string{"--policies", own, "--cost", "rows=0", log}, []string{"--cost", "a whole number from 1"}},
		{[]string{"--policies", own, "--cost", "rows=1", "--cost", "rows=2", log}, []string{"--cost", "rows is repeated"}},
		{[]string{"--policies", plans, "--plan", "prp", log}, []string{`--plan is "prp"; want one that a policy has: 7, free, pro`}},
		{[]string{"--policies", policies, "--plan", "pro", log}, []string{`--plan is "pro", and no policy has plans`}},
		{[]string{"--policies", policies, "-", "-"}, []string{"- is given twice"}},
		{[]string{"--policies", policies, "--at-most", "100", log}, []string{"--at-most is 100; want a percentage from 0 to less than 100"}},
		{[]string{"--policies", policies, "--at-most", "NaN", log}, []string{"--at-most is NaN"}},
		{[]string{"--policies", policies, "--route", "users", log}, []string{"--route", "missing /"}},
		{[]string{"--speed", log}, []string{"--speed"}},
		{append([]string{"--policies", policies}, make([]string, maxFiles+1)...), []string{"101 logs are given; want at most 100"}},
	} {
		var out bytes.Buffer
		err := run(t.Context(), c.args, strings.NewReader(""), &out, io.Discard)

		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") {
				t.Errorf("%q: got %v; want %q", c.args, err, want)
			}
		}
		if out.Len() > 0 {
			t.Errorf("%q: got %q; want only the error", c.args, &out)
		}
	}
}

// A file that ends too early is an error, after the report.
func TestRunReportsBeforeError(t *testing.T) {
	whole := zipped(t, strings.Repeat(lineAt(1, "x"), 2000))
	names := write(t, "policies: [{name: a, key: client, limit: 10/minute}]", whole[:len(whole)-12])
	var out strings.Builder
	err := run(t.Context(), []string{"--policies", names[0], names[1]}, nil, &out, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ends too early") || !strings.Contains(out.String(), "policy a\n") {
		t.Errorf("got %v and\n%s\nwant an error and the report", err, &out)
	}
}

// Ctrl-C while the log is still being written prints the report so far.
func TestRunInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	stdin, log := io.Pipe()
	defer log.Close()
	policies := write(t, "policies: [{name: a, key: client, limit: 10/minute}]")[0]

	var out strings.Builder
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"--policies", policies, "-"}, stdin, &out, io.Discard)
	}()

	io.WriteString(log, strings.Repeat(lineAt(1, "x"), 25))
	io.WriteString(log, lineAt(2, "x")[:20]) // read only after what came before has been handed on
	interrupt()

	select {
	case err := <-done:
		if err != nil {
			t.Errorf("got %v; want no error", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("goes on 10 s after the interrupt")
	}

	if want := "Stopped before the end.\n25 requests in 25 lines"; !strings.HasPrefix(out.String(), want) {
		t.Errorf("got\n%s\nwant %s", &out, want)
	}
}
