package redistest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

const echoer = "REDISTEST_ECHOER"

func TestMain(m *testing.M) {
	redistest.Child(echoer, func(arg string, in io.Reader, out io.Writer) error {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			fmt.Fprintln(out, arg, lines.Text())
		}
		_, err := fmt.Fprintln(out, "bye")
		return err
	})
	os.Exit(m.Run())
}

func TestProcess(t *testing.T) {
	p := redistest.StartProcess(t, echoer, "hello")
	for _, line := range []string{"one", "two"} {
		p.Write(line)
		if got, want := p.Read(), "hello "+line; got != want {
			t.Errorf("got %q; want %q", got, want)
		}
	}
	p.CloseInput()
	if got := p.Read(); got != "bye" {
		t.Errorf("after the end of its input: got %q; want bye", got)
	}
	p.End()
}

func TestKilledProcess(t *testing.T) {
	p := redistest.StartProcess(t, echoer, "hello")
	p.Kill()
	p.End() // is no error, as at the end of the test
}
