package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

var ports struct {
	sync.Mutex
	taken map[int]bool
}

// freePort returns a loopback port that nobody listens on and that this process
// has not been given before. It lies below the ranges from which Linux (32768)
// and the others (49152) number outgoing connections: a server that is down for
// a while must find its port free again, and there a client that dials it
// meanwhile could be given that very port.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.taken == nil {
		ports.taken = make(map[int]bool)
	}
	var err error
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		if ports.taken[port] {
			continue
		}
		var ln net.Listener
		if ln, err = net.Listen("tcp", loopback(port)); err != nil {
			continue
		}
		if err = ln.Close(); err != nil {
			continue
		}
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1: %w", err)
}

// loopback is the address of a port on this machine.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
