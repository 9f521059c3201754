// Package parallel sets how many tests of a package run at once.
package parallel

import (
	"flag"
	"strconv"
)

// AtMost lets so many parallel tests run at once, for a package whose tests wait most of the time: by default there are as
// many as processors. Call it in TestMain.
func AtMost(n int) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
