package fleet

import "time"

func init() { interval = 20 * time.Millisecond }
