package replay

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"
)

// writeLoad writes a day of lines, clients and users, of which some are far more frequent
// than others.
func writeLoad(w io.Writer, lines, subjects int) error {
	chance := rand.New(rand.NewPCG(3, 4))
	often := rand.NewZipf(chance, 1.1, 50, uint64(subjects-1))
	out := bufio.NewWriterSize(w, 1<<16)
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

	var line []byte
	for n := range lines {
		at := start.Add(24 * time.Hour / time.Duration(lines) * time.Duration(n))
		who := n // each comes at least once
		if n >= subjects || chance.IntN(2) == 0 {
			who = int(often.Uint64())
		}

		line = line[:0]
		if who%4 == 0 {
			line = fmt.Appendf(line, "2001:db8:%x:%x::%x", who>>16, who&0xffff, chance.IntN(1<<16))
		} else {
			line = fmt.Appendf(line, "10.%d.%d.%d", who>>16, who>>8&0xff, who&0xff)
		}

		line = append(line, " - "...)
		if who%3 == 0 {
			line = append(line, '-')
		} else {
			line = strconv.AppendInt(append(line, "user"...), int64(who), 10)
		}

		line = at.AppendFormat(line, ` [02/Jan/2006:15:04:05 -0700] "`)
		switch chance.IntN(8) {
		case 0:
			line = append(line, "POST /login"...)
		case 1:
			line = append(line, "GET /me"...)
		default:
			line = strconv.AppendInt(append(line, "GET /hello/"...), int64(chance.IntN(1e6)), 10)
		}

		line = append(line, ` HTTP/1.1" 200 1234 "https://www.example.com/start" "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/141.0"`+"\n"...)
		if _, err := out.Write(line); err != nil {
			return err
		}
	}
	return out.Flush()
}
