package redisstore

import (
	"context"
	_ "embed"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
)

//go:embed report.lua
var reportLua string

var reportScript = send.NewScript(reportLua)

// maxReports is the most reports in one call.
const maxReports = 128

// to reports to one server: in one script, or in one for each subject where the server may need that.
func (r *reporter) to(t send.Target, list []outage.Report) error {
	for part := range slices.Chunk(list, maxReports) {
		byShare := make(map[string][]outage.Report)
		for _, report := range part {
			share := t.Share(report.Key)
			byShare[share] = append(byShare[share], report)
		}

		var calls []send.Call
		sent := r.store.clock.Now()
		for _, reports := range byShare {
			calls = append(calls, send.Call{Args: r.args(reports), Replies: 2 * len(reports), Learn: func(reply []int64) {
				for i := range reports {
					r.record(&reports[i], reply[2*i], reply[2*i+1], sent)
				}
			}})
		}

		if err := t.Run(reportScript, calls); err != nil {
			return err
		}
	}
	return nil
}

// args are those of report.lua.
func (r *reporter) args(list []outage.Report) []any {
	args := []any{2 * len(list)}
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
