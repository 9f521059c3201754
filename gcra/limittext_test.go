package gcra_test

import (
	"encoding/json"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// settings are a program's, in a file.
type settings struct {
	Login gcra.Limit            `json:"login" yaml:"login"`
	Other *gcra.Limit           `json:"other" yaml:"other"`
	Plans map[string]gcra.Limit `json:"plans" yaml:"plans"`
}

func TestLimitInFiles(t *testing.T) {
	for _, format := range []struct {
		name      string
		text      string
		marshal   func(any) ([]byte, error)
		unmarshal func([]byte, any) error
	}{
		{"JSON", `{"login":"5/minute","other":"25/5s","plans":{"free":"100/hour burst 20","none":""}}`, json.Marshal, json.Unmarshal},
		{"YAML", "login: 5/minute\nother: 25/5s\nplans:\n  free: 100/hour burst 20\n  none: \"\"\n", yaml.Marshal,
			yaml.Unmarshal},
	} {
		t.Run(format.name, func(t *testing.T) {
			var s settings
			if err := format.unmarshal([]byte(format.text), &s); err != nil {
				t.Fatal(err)
			}
			if s.Login != gcra.PerMinute(5) || s.Other == nil || s.Other.String() != "25/5s" {
				t.Errorf("got login %v, other %v; want 5/minute, 25/5s", s.Login, s.Other)
			}
			if none, ok := s.Plans["none"]; s.Plans["free"] != gcra.PerHour(100).WithBurst(20) || !ok || none != (gcra.Limit{}) {
				t.Errorf("got plans %v; want 100/hour burst 20 and the zero Limit", s.Plans)
			}
			if got, err := format.marshal(s); err != nil || string(got) != format.text {
				t.Errorf("written again: got %s, %v; want %s", got, err, format.text)
			}
			for _, wrong := range []string{"100/fortnight", "0/minute", " "} {
				if err := format.unmarshal([]byte(`{"login": "`+wrong+`"}`), &s); err == nil || !strings.Contains(err.Error(), `gcra: limit "`+wrong+`"`) {
					t.Errorf("%q: got %v; want an error with the value", wrong, err)
				}
			}
			if err := format.unmarshal([]byte(`{"login": {"Count": 5}}`), &s); err == nil {
				t.Error("an object: got no error")
			}
			if s.Login != gcra.PerMinute(5) {
				t.Errorf("after errors: got %v; want 5/minute, unchanged", s.Login)
			}
			if got, err := format.marshal(settings{Login: gcra.PerMinute(-2)}); err == nil || !strings.Contains(err.Error(), "count is -2") {
				t.Errorf("an invalid limit: got %s, %v; want an error with the count", got, err)
			}
		})
	}
}

func TestLimitFlag(t *testing.T) {
	parse := func(otherwise gcra.Limit, args ...string) (gcra.Limit, string, error) {
		var l gcra.Limit
		var usage strings.Builder
		set := flag.NewFlagSet("server", flag.ContinueOnError)
		set.SetOutput(io.Discard)
		set.TextVar(&l, "limit", otherwise, "requests of a client")
		err := set.Parse(args)
		set.SetOutput(&usage)
		set.PrintDefaults()
		return l, usage.String(), err
	}
	if l, usage, err := parse(gcra.PerMinute(100)); err != nil || l != gcra.PerMinute(100) || !strings.Contains(usage, "(default 100/minute)") {
		t.Errorf("no flag: got %v, %v, usage %q; want the default in both", l, err, usage)
	}
	if l, usage, err := parse(gcra.Limit{}, "-limit", "25/5s burst 50"); err != nil || l.String() != "25/5s burst 50" || strings.Contains(usage, "default") {
		t.Errorf("no default: got %v, %v, usage %q; want 25/5s burst 50", l, err, usage)
	}
	if l, _, err := parse(gcra.PerMinute(100), "-limit", "fast"); err == nil || !strings.Contains(err.Error(), `gcra: limit "fast": want a form such as`) {
		t.Errorf("a wrong flag: got %v, %v; want an error with the value and the form", l, err)
	}
}
