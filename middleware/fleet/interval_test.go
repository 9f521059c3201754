package fleet

import "time"

func init() {
	timeout = 5 * time.Second // or a busy machine reads nothing in time
	interval = 20 * time.Millisecond
}
