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

// busDistance is how far the port of the cluster bus is from the server's. It
// can be set since Redis 7.0 only.
const busDistance = 10_000

// freePort returns a free loopback port that this process has not used before. It is
// below the ranges of outgoing connections (32768 on Linux, 49152 elsewhere): a
// client that dials a server that is down could otherwise get the server's port as
// its own. With bus the port of the cluster bus is free, too.
func freePort(bus bool) (int, error) {
	ports.Lock()
	defer ports.Unlock()
	if ports.taken == nil {
		ports.taken = make(map[int]bool)
	}

	var err error
	for range 1000 {
		all := []int{10_000 + rand.IntN(20_000)}
		if bus {
			all[0] = 10_000 + rand.IntN(20_000-busDistance)
			all = append(all, all[0]+busDistance)
		}

		if err = free(all); err != nil {
			continue
		}

		for _, port := range all {
			ports.taken[port] = true
		}
		return all[0], nil
	}

	return 0, fmt.Errorf("no free port on 127.0.0.1: %w", err)
}

// free returns nil if all the ports are free.
func free(all []int) error {
	for _, port := range all {
		if ports.taken[port] {
			return errPortTaken
		}
		ln, err := net.Listen("tcp", loopback(port))
		if err != nil {
			return err
		}
		if err := ln.Close(); err != nil {
			return err
		}
	}
	return nil
}

// loopback is the address of a port on this machine.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
