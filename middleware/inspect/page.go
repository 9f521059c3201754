package inspect

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// contentPolicy allows the page its own style and forms, and nothing else.
var contentPolicy = "default-src 'none'; style-src '" + styleHash(pageCSS) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

func styleHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":        func() template.CSS { return template.CSS(pageCSS) }, //nolint:gosec // our own file
	"number":     number,
	"abbreviate": abbreviate,
	"share":      share,
	"human":      human,
	"clip":       clip,
	"escape":     escape,
	"half":       func(n int64) int64 { return n / 2 },
	"words":      words,
}).Parse(pageHTML))

// number writes 12345 as 12,345.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// abbreviate writes a number of the chart's scale, 40000 as 40k.
func abbreviate(n int64) string {
	for _, unit := range []struct {
		size int64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= 10*unit.size || n >= unit.size && n%unit.size == 0 {
			return strconv.FormatInt(n/unit.size, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// share writes n of total in percent: 0 only if there are none, 100 only if all are.
func share(n, total int64) string {
	switch percent := 100 * float64(n) / float64(max(total, 1)); {
	case n == 0:
		return "0 %"
	case percent < 0.1:
		return "< 0.1 %"
	case n < total && percent > 99.9:
		return "> 99.9 %"
	case percent < 10 || n < total && percent > 99:
		return fmt.Sprintf("%.1f %%", percent)
	default:
		return fmt.Sprintf("%.0f %%", percent)
	}
}

// human writes a duration in its two largest units.
func human(s seconds) string {
	d := time.Duration(s)
	const day = 24 * time.Hour

	switch {
	case d <= 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)

	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < day:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	default:
		return twoUnits(d, day, "d", time.Hour, "h")
	}
}

func twoUnits(d, large time.Duration, name string, small time.Duration, rest string) string {
	s := fmt.Sprintf("%d %s", d/large, name)
	if n := d % large / small; n > 0 {
		s += fmt.Sprintf(" %d %s", n, rest)
	}
	return s
}

// unquoter leaves alone what strconv.Quote escapes only for its quotes.
var unquoter = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// escape makes all of a subject visible: it escapes characters that do not print or that
// change the direction of text.
func escape(subject string) string {
	quoted := strconv.Quote(subject)
	return unquoter.Replace(quoted[1 : len(quoted)-1])
}

const maxShown = 80 // characters of a subject

// clip escapes a subject and leaves out the middle of a long one: the beginning has its
// kind, and long subjects often differ at the end.
func clip(subject string) string {
	s := []rune(escape(subject))
	if len(s) <= maxShown {
		return string(s)
	}
	return string(s[:maxShown-21]) + " … " + string(s[len(s)-18:])
}
