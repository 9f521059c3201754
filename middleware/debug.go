package middleware

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// logDecision logs at level Debug what decided about a request. docs/troubleshooting.md
// explains the line.
func (l *Limiter) logDecision(ctx context.Context, a *admission) {
	logger := cmp.Or(l.log.Logger, slog.Default())
	if !logger.Enabled(ctx, slog.LevelDebug) {
		return
	}

	var deniedBy []string
	var policies []any
	for i := range a.charges {
		e, c := &a.entries[i], &a.charges[i]
		if a.denies(i) {
			deniedBy = append(deniedBy, c.Policy)
		}

		attrs := []any{"subject", subjectText(c.Subject)}
		// Without an answer of a store 0 would look like an empty bucket.
		if e.status != undecided && e.source != sourceBan {
			attrs = append(attrs, "left", c.Result.Remaining)
		}
		attrs = append(attrs, "from", l.origin(e, c))
		if c.Shadow {
			attrs = append(attrs, "shadow", true)
		}
		policies = append(policies, slog.Group(c.Policy, attrs...))
	}

	if len(deniedBy) == 0 {
		logger.DebugContext(ctx, "ratelimit: allowed", slog.Group("policy", policies...))
	} else {
		logger.DebugContext(ctx, "ratelimit: denied", "denied_by", strings.Join(deniedBy, ", "), slog.Group("policy", policies...))
	}
}

// origin says where the answer about a charge came from.
func (l *Limiter) origin(e *entry, c *gcra.Charge) string {
	switch {
	case e.source == sourceBan:
		return "ban"
	case e.source == sourceOpen:
		return "failure mode open"
	case e.source == sourceClosed:
		return "failure mode closed"
	case e.status == undecided:
		return "not asked"
	case e.source == sourceLocal:
		return "local share"
	case c.Result.Cached:
		return "denial cache"
	}
	return fmt.Sprintf("%T", l.cfg.Store)
}

// subjectText is a subject for the log: as it is if it is short and its parts have a kind, as
// the keys of package keyfunc. Others may be secrets, so they become the hash that a long one
// has in Redis.
func subjectText(text string) string {
	kinds := strings.Split(subject.KindOf(text), " and ")
	// What a Join has beyond these, or in a Join of its own, may be anything.
	known := strings.Count(text, "|") < subject.MostParts && !slices.Contains(kinds, subject.Other) && !slices.Contains(kinds, "join")
	if len(text) <= 64 && known {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "%#" + hex.EncodeToString(sum[:16])
}
