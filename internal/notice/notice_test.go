package notice_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

type receiver func(report string)

func (f receiver) Notice(code diag.Code, text string, args ...any) {
	f(fmt.Sprint(code, ": ", text, args))
}

func TestReport(t *testing.T) {
	notice.Report(t.Context(), diag.JWTRejected, "without a receiver")

	var got string
	ctx := context.WithValue(t.Context(), notice.Key{}, receiver(func(report string) { got = report }))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	notice.Report(ctx, diag.JWTRejected, "text", "key", 1)
	if want := "jwt-rejected: text[key 1]"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
