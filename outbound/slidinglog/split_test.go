package slidinglog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// When another server denies, the units that were taken are deleted. If others were taken after
// them, the oldest units are deleted instead, so that no unit counts as older than it is.
func TestGiveBack(t *testing.T) {
	client := redistest.Any(t)
	ctx := t.Context()
	for _, tt := range []struct {
		costs []int64  // of the charges, one after another
		back  int      // the charge that is given back
		want  []string // the numbers of a log, without the times
	}{
		{[]int64{2, 3}, 1, []string{"0", "2"}},
		{[]int64{2, 1, 4}, 2, []string{"0", "2", "3"}},
		{[]int64{2, 3}, 0, []string{"2", "5"}},
		{[]int64{2, 3, 1}, 1, []string{"3", "5", "6"}},
		{[]int64{4, 1, 1}, 1, []string{"1", "4", "5", "6"}},
		{[]int64{1}, 0, nil},
	} {
		name := fmt.Sprint(tt.costs, " back ", tt.back)
		r, err := New(client, Config{Prefix: name, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}

		var taken *part
		for i, cost := range tt.costs {
			ps, err := paramsOf(ctx, []gcra.Charge{{Limit: gcra.PerHour(20), Cost: cost}}, false)
			if err != nil {
				t.Fatal(err)
			}

			p := &part{ops: []*op{{params: ps[0], key: name}}}
			if err := r.take(ctx, p, take, anyDelay); err != nil || !p.admitted {
				t.Fatalf("%s: got admitted %v, %v", name, p.admitted, err)
			}
			if i == tt.back {
				taken = p
			}
		}

		if err := r.giveBack(ctx, []*part{taken, {admitted: false}}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, element := range client.LRange(ctx, name, 0, -1).Val() {
			if i%2 == 0 {
				got = append(got, element)
			}
		}

		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q; want %q", name, got, tt.want)
		}
	}
}
