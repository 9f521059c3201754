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
var contentPolicy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleSum[:]) + "'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

var styleSum = sha256.Sum256([]byte(pageCSS))

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":    func() template.CSS { return template.CSS(pageCSS) }, // our own file
	"number": number,
	"share":  share,
	"human":  human,
	"escape": escape,
	"half":   func(n int64) int64 { return n / 2 },
	"words":  words,
}).Parse(pageHTML))

// number writes 12345 as 12,345.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// share writes n of total in percent: 0 only if there are none, 100 only if all are.
func share(n, total int64) string {
	percent := 100 * float64(n) / float64(max(total, 1))
	if 0 < n && n < total {
		percent = min(max(percent, 0.1), 99.9)
	}
	return fmt.Sprintf("%.1f %%", percent)
}

// human writes a duration in milliseconds, in seconds with a tenth, or in its two largest units.
func human(s seconds) string {
	d := time.Duration(s)
	switch {
	case 0 < d && d < time.Second:
		return fmt.Sprintf("%v ms", float64(d.Microseconds())/1e3)
	case d < time.Minute:
		return fmt.Sprintf("%v s", d.Round(time.Second/10).Seconds())
	}

	// Nobody needs the seconds of a wait of days.
	var units []string
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / unit.size; n > 0 {
			units = append(units, fmt.Sprintf("%d %s", n, unit.name))
		}
		d %= unit.size
	}
	return strings.Join(units[:min(2, len(units))], " ")
}

// unquoter leaves alone what strconv.Quote escapes only for its quotes.
var unquoter = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// escape makes all of a subject visible: it escapes characters that do not print or that
// change the direction of text.
func escape(subject string) string {
	quoted := strconv.Quote(subject)
	return unquoter.Replace(quoted[1 : len(quoted)-1])
}
