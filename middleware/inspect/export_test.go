package inspect

import (
	"time"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// NewAt is New with a clock.
func NewAt(now func() time.Time, cfg Config, limiters ...*middleware.Limiter) (*Inspector, error) {
	return newAt(now, cfg, limiters)
}
