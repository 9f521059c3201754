package main

import (
	"fmt"
	"io"
	"strings"
)

// step is something to try in a terminal. The page shows it, and the server
// prints it.
type step struct {
	Says  string
	Lines string // to paste
}

func stepsAt(addr string) []step {
	at := strings.NewReplacer("ADDR", addr).Replace
	return []step{
		{"10 an hour for each address. The 11th request gets 429 and a Retry-After:",
			at(`for i in $(seq 11); do curl -s -o /dev/null -w '%{http_code}\n' http://ADDR/hello; done
curl -i http://ADDR/hello
`)},
		{"5 a second and 100 a day for each user. A report takes 60 of the 100, so the second gets 429:",
			at(`TOKEN=$(curl -s -d user=alice http://ADDR/login)
curl -i -H "Authorization: Bearer $TOKEN" http://ADDR/me
for i in 1 2; do curl -i -H "Authorization: Bearer $TOKEN" http://ADDR/report; done
`)},
	}
}

func greet(out io.Writer, addr, kept string) {
	fmt.Fprintf(out, "Quickstart listens on http://%s\nOpen that in a browser, or paste the lines below.\nLimits are kept %s.\n\n", addr, kept)
	for _, s := range stepsAt(addr) {
		fmt.Fprintln(out, s.Says+"\n")
		for line := range strings.Lines(s.Lines) {
			fmt.Fprint(out, "  ", line)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, "Ctrl-C ends it.")
}
