package main

import (
	"bytes"
	"fmt"
	"html"
	"time"
)

// Classes of spans.
const (
	plain   = "n"
	comment = "c"
	command = "p"
	good    = "g"
	bad     = "b"
	warning = "w"
)

type span struct{ class, text string }

// terminal is the lines of a terminal and when each was shown.
type terminal struct {
	start time.Time
	lines []terminalLine
}

type terminalLine struct {
	at    time.Duration
	spans []span
}

func (t *terminal) begin() { t.start = time.Now() }

func (t *terminal) add(class, text string) {
	spans := []span{{class, text}}
	if class == command {
		spans = []span{{comment, "$ "}, {command, text}}
	}
	t.addSpans(spans)
}

func (t *terminal) addSpans(spans []span) {
	t.lines = append(t.lines, terminalLine{time.Since(t.start), spans})
}

const (
	terminalWidth = 830
	lineHeight    = 25
	titleHeight   = 34
	holds         = 8 * time.Second // after the last line
)

// svg draws the terminal. The lines appear as they did, again and again; all are there at once for
// those who want less motion, and in programs that know no animations.
func (t *terminal) svg(title string) []byte {
	height := titleHeight + lineHeight*len(t.lines) + 24
	lasts := t.lines[len(t.lines)-1].at + holds

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-labelledby="t">
<title id="t">%s</title>
<style>
text{font:17px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dde5;white-space:pre}
.c{fill:#8f9bab}.p{fill:#fff;font-weight:700}.g{fill:#6fcf8e;font-weight:700}.b{fill:#ff7b72;font-weight:700}.w{fill:#e2a93d}
@media (prefers-reduced-motion:no-preference){
`, terminalWidth, height, html.EscapeString(title))
	for i, l := range t.lines {
		percent := 100 * l.at.Seconds() / lasts.Seconds()
		fmt.Fprintf(&b, "#l%d{animation:k%[1]d %.1fs step-end infinite}@keyframes k%[1]d{0%%{opacity:0}%.2[3]f%%{opacity:1}}\n",
			i, lasts.Seconds(), max(percent, 0.01))
	}

	fmt.Fprintf(&b, `}
</style>
<rect x=".5" y=".5" width="%d" height="%d" rx="10" fill="#14181d" stroke="#3a424d"/>
<circle cx="20" cy="18" r="5.5" fill="#ff5f57"/>
<circle cx="38" cy="18" r="5.5" fill="#febc2e"/><circle cx="56" cy="18" r="5.5" fill="#28c840"/>
`, terminalWidth-1, height-1)
	for i, l := range t.lines {
		fmt.Fprintf(&b, `<text id="l%d" x="20" y="%d">`, i, titleHeight+lineHeight*(i+1))
		for _, s := range l.spans {
			fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, s.class, html.EscapeString(s.text))
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
