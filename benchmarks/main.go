// Command benchmarks runs the benchmarks of this directory round by round, and compares the
// medians with the targets of the project. See README.md.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A slice of time for each contestant in a round.
const benchtime = "200ms"

// benchstat states a confidence interval for as many rounds or more.
const enoughRounds = 6

const samplesFile = "bench.txt"

// reverseVar lets the contestants run the other way round.
const reverseVar = "RATELIMIT_BENCH_REVERSE"

func main() {
	rounds := flag.Int("rounds", 10, fmt.Sprintf("`number` of rounds; fewer than %d print the targets and write no pages", enoughRounds))
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	if rounds < 1 {
		return fmt.Errorf("-rounds is %d; want 1 or more", rounds)
	}
	server, err := exec.Command(cmp.Or(os.Getenv("RATELIMIT_TEST_SERVER"), "redis-server"), "--version").Output()
	if err != nil {
		return fmt.Errorf("%w; want redis-server on the PATH (Debian: apt-get install redis-server), or the path of one in RATELIMIT_TEST_SERVER", err)
	}
	version, _, _ := strings.Cut(string(server), " sha=")
	say("%s\n", quiet(usedByOthers(func() time.Duration { time.Sleep(time.Second); return 0 })))

	// Each round is a new process, in which all contestants run one after the other.
	temp, err := os.MkdirTemp("", "benchmarks-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)

	program := filepath.Join(temp, "bench.test")
	if out, err := exec.Command("go", "test", "-c", "-o", program, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, out)
	}

	samples, err := os.Create(samplesFile)
	if err != nil {
		return err
	}
	defer samples.Close()

	begin, others := time.Now(), 0.0
	for round := range rounds {
		say("round %d of %d:", round+1, rounds)
		var failed error
		used := usedByOthers(func() time.Duration {
			var cpu time.Duration
			cpu, failed = runRound(program, round, samples)
			return cpu
		})

		if failed != nil {
			return failed
		}
		others = max(others, used)
		took := time.Since(begin)
		say("\n  %v; %v left; %s\n", took.Round(time.Second), (took / time.Duration(round+1) * time.Duration(rounds-round-1)).Round(time.Second), quiet(used))
	}

	figures, err := readFigures(samplesFile)
	if err != nil {
		return err
	}
	table, err := figures.table()
	if err != nil {
		return err
	}

	fmt.Fprint(os.Stdout, table)
	if rounds < enoughRounds {
		say("wrote %s; %d rounds or more write RESULTS.md and the figures of README.md\n", samplesFile, enoughRounds)
		return nil
	}

	if err := writeResults("RESULTS.md", table, rounds, version, quiet(others)); err != nil {
		return err
	}
	if err := quote("../README.md", table); err != nil {
		return err
	}
	say("wrote %s, RESULTS.md and the figures of README.md\n", samplesFile)
	return nil
}

// say shows progress.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }

// runRound runs all benchmarks once and returns the CPU time that they used, with the
// servers that they started.
func runRound(program string, round int, samples io.Writer) (time.Duration, error) {
	var problems strings.Builder
	cmd := exec.Command(program, "-test.run=^$", "-test.bench=.", "-test.benchtime="+benchtime, "-test.timeout=1h")
	cmd.Env = append(os.Environ(), "RATELIMIT_TEST_REDIS=required")
	if round%2 == 1 {
		cmd.Env = append(cmd.Env, reverseVar+"=1")
	}

	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}

	lines, last := bufio.NewScanner(out), ""
	for lines.Scan() {
		fmt.Fprintln(samples, lines.Text())
		work, _, _ := strings.Cut(lines.Text(), "/")
		if name, ok := strings.CutPrefix(work, "Benchmark"); ok && name != last {
			say(" %s", name)
			last = name
		} else if !ok {
			fmt.Fprintln(&problems, lines.Text())
		}
	}

	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, &problems)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// usedByOthers is how many cores other programs kept busy while f ran; f returns the CPU
// time of our own. It is 0 where there is no /proc/stat.
func usedByOthers(f func() time.Duration) float64 {
	begin, before := time.Now(), busy()
	own := f()
	return max(0, (busy()-before-own).Seconds()/time.Since(begin).Seconds())
}

// busy is the CPU time of all programs since the start of the machine, and the time that
// the host of a virtual machine gave to others.
func busy() (sum time.Duration) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	for i, f := range fields {
		if i >= 1 && i <= 3 || i == 8 {
			ticks, _ := strconv.Atoi(f)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// quiet says whether others left the machine to us.
func quiet(others float64) string {
	text := fmt.Sprintf("other programs used %.2f of %d cores", others, runtime.NumCPU())
	if others > 0.1*float64(runtime.NumCPU()) {
		text += "; THE MACHINE IS NOT QUIET: do not quote these figures"
	}
	return text
}
