package redisclient

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// An address whose dials fail is dialled at most ten times a second.
func TestDialerPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, refused := 0, errors.New("connection refused")
		d := &Dialer{dial: func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, refused
		}}

		for range 1000 {
			conn, err := d.Dial(t.Context(), "tcp", "a")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("x")); !errors.Is(err, refused) {
				t.Fatalf("got %v; want %v", err, refused)
			}
			time.Sleep(time.Millisecond)
		}

		if dials != 10 {
			t.Errorf("got %d dials in a second; want 10", dials)
		}
		d.Forget()
		if _, err := d.Dial(t.Context(), "tcp", "a"); err != nil || dials != 11 {
			t.Errorf("after Forget: got %d dials, %v; want one more", dials, err)
		}
	})
}
