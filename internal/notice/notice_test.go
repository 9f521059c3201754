package notice_test

import (
	"context"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/notice"
)

func TestReport(t *testing.T) {
	notice.Report(t.Context(), "code", "nobody hears it")

	var got string
	ctx := notice.With(t.Context(), func(code, text string) { got = code + ": " + text })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	notice.Report(ctx, "code", "text")
	if want := "code: text"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	notice.Report(notice.With(ctx, nil), "code", "switched off")
}

// answering is a context that answers the key itself, as a limiter's does.
type answering struct {
	context.Context
	report notice.Func
}

func (a *answering) Value(key any) any {
	if _, ok := key.(notice.Key); ok {
		return a.report
	}
	return a.Context.Value(key)
}

func TestOwnContext(t *testing.T) {
	calls := 0
	ctx := &answering{t.Context(), func(string, string) { calls++ }}
	if got := testing.AllocsPerRun(100, func() { notice.Report(ctx, "code", "text") }); got != 0 {
		t.Errorf("got %v allocations a report; want none", got)
	}
	if calls == 0 {
		t.Error("the context's own Func was not called")
	}
}
