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

// freePort returns a loopback port that nobody listens on and that this process
// has not been given before. It lies below the ranges from which Linux (32768)
// and the others (49152) number outgoing connections: a server that is down for
// a while must find its port free again, and there a client that dials it
// meanwhile could be given that very port. With bus the port of the cluster bus
// is free, too.
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

// free returns nil when all the ports can be had.
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
