package replay

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// newProgress returns a progress bar for the bytes read, visible on a terminal unless quiet.
func newProgress(stderr io.Writer, files []string, quiet bool) *progressbar.ProgressBar {
	terminal, ok := stderr.(*os.File)
	return progressbar.NewOptions64(size(files),
		progressbar.OptionSetVisibility(!quiet && ok && term.IsTerminal(int(terminal.Fd()))),
		progressbar.OptionSetWriter(stderr),
		progressbar.OptionSetDescription("replay"),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true),
		progressbar.OptionSetWidth(20),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

// size returns the size of all files, or -1 if it is unknown.
func size(files []string) (total int64) {
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return -1
		}
		total += info.Size()
	}
	return max(total, 1)
}
