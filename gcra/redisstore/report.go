package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed report.lua
var reportLua string

var reportSHA = redis.NewScript(reportLua).Hash()

// maxReports is the most reports in one call.
const maxReports = 128

// to reports to one server.
func (r *reporter) to(t send.Target, list []outage.Report) error {
	if t.Kind() == gcra.KeysApart {
		return rediskit.ErrKeysApart
	}
	for part := range slices.Chunk(list, maxReports) {
		if err := r.inTime(t, part); err != nil {
			return err
		}
	}
	return nil
}

// inTime reports, and stops waiting after the Timeout, whatever the client's own settings. A late reply is recorded all
// the same.
func (r *reporter) inTime(t send.Target, list []outage.Report) (err error) {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // in a hook of the client
				result <- fmt.Errorf("panic: %v", p)
			}
		}()
		result <- r.send(t, list)
	}()

	select {
	case err = <-result:
	case <-time.After(r.store.timeout):
		err = r.store.sender.TimeoutError()
	}
	t.Learn(err)
	return err
}

// send sends reports and records the replies: in one script, or in one for each subject where the server may need that.
func (r *reporter) send(t send.Target, list []outage.Report) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.store.timeout)
	defer cancel()
	parts := [][]outage.Report{list}
	if t.Kind() != gcra.OneKeyspace {
		parts = bySubject(list)
	}

	sent := r.store.clock.Now()
	cmds := make([]*redis.Cmd, len(parts))
	if len(parts) == 1 {
		cmds[0] = rediskit.Send(ctx, t.Client, r.args(list))
	} else {
		pipe := t.Client.Pipeline()
		for i, part := range parts {
			cmds[i] = rediskit.Queue(ctx, pipe, r.args(part))
		}
		rediskit.Exec(ctx, pipe)
	}

	for i, part := range parts {
		reply, replyErr := rediskit.Reply(rediskit.SendAgain(ctx, t.Client, cmds[i], reportLua), 2*len(part))
		if replyErr != nil {
			err = replyErr
			continue
		}
		for j := range part {
			r.record(&part[j], reply[2*j], reply[2*j+1], sent)
		}
	}
	return err
}

// bySubject divides reports among the subjects.
func bySubject(list []outage.Report) (parts [][]outage.Report) {
	index := make(map[string]int)
	for _, report := range list {
		tag := send.Tag(report.Key)
		i, known := index[tag]
		if !known {
			i = len(parts)
			index[tag] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], report)
	}
	return parts
}

func (r *reporter) args(list []outage.Report) []any {
	args := []any{"evalsha", reportSHA, 2 * len(list)}
	for i := range list {
		args = append(args, list[i].Key, list[i].Key+r.suffix)
	}
	for _, p := range list {
		args = append(args, p.ID, p.Amount, p.Room, p.Top, p.Ends, p.Begins, p.Previous)
	}
	return args
}

// record records the reply to a report. sent is the time before the call.
func (r *reporter) record(report *outage.Report, charged, ahead, sent int64) {
	s := r.store
	if ahead < 0 {
		r.grants.Drop(report, sent)
		return
	}

	base := sent
	if report.Ends > 0 {
		base = s.clock.OnScale(report.Ends)
	}
	refund := s.known.Record(report, charged, base+ahead, sent)
	if refund.Inc == 0 {
		return
	}

	// More was charged than is left since a refund.
	q := send.NewRequest([]buckets.Charge{refund}, true)
	q.Keys = append(q.Keys, report.Key)
	go func() {
		if s.sender.Send(context.Background(), q) == nil {
			q.Free()
		}
	}()
}
