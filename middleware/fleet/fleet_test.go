package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/overrides"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/fleet"
)

func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }

// patience is how long a busy machine may take.
const patience = 30 * time.Second

// write sets an override as the command does; removed ones have no limit.
func write(t *testing.T, c redis.UniversalClient, subject, policy, limit string, until time.Time) {
	t.Helper()
	e := overrides.Entry{Subject: subject, Policy: policy, Limit: limit, Until: until, Why: "test", By: "operator", At: time.Now()}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}

	_, err = c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		if limit == "" {
			p.HDel(t.Context(), overrides.Key("rl:"), e.Field())
		} else {
			p.HSet(t.Context(), overrides.Key("rl:"), e.Field(), text)
		}
		p.HSet(t.Context(), overrides.Key("rl:"), overrides.Version, fmt.Sprint(time.Now().UnixNano()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func storeOn(t *testing.T, c redis.UniversalClient) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(c, redisstore.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func follow(t *testing.T, c redis.UniversalClient, log *diagtest.Log) *fleet.Overrides {
	t.Helper()
	cfg := fleet.Config{Store: storeOn(t, c)}
	if log != nil {
		cfg.Logger = log.Logger()
	}
	o, err := fleet.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// is waits until a subject's override in a policy is a limit, "banned", or "" for none.
func is(t *testing.T, o *fleet.Overrides, policy, subject, want string) {
	t.Helper()
	redistest.Eventually(t, patience, subject+" in "+policy+" to be "+want, func() bool { return now(o, policy, subject) == want })
}

func now(o *fleet.Overrides, policy, subject string) string {
	switch found, ok := o.Find(policy, subject); {
	case !ok:
		return ""
	case found.Banned:
		return "banned"
	default:
		return found.Limit.String()
	}
}

// A ban wins over a limit, and a limit of a policy over one of all policies; each ends. New has
// read those that there are.
func TestFind(t *testing.T) {
	t.Parallel()
	c := redistest.Any(t)
	hour := time.Now().Add(time.Hour)
	write(t, c, "a", "", "banned", hour)
	write(t, c, "a", "p", "7/hour", hour)
	write(t, c, "b", "p", "none", hour)
	write(t, c, "c", "", "banned", time.Now().Add(-time.Second))
	write(t, c, "e", "", "none", hour)
	write(t, c, "e", "p", "3/hour", hour)
	write(t, c, "e", "q", "banned", hour)
	write(t, c, "f", "", "default", hour)
	o := follow(t, c, nil)

	for name, want := range map[string]string{
		"p a": "banned", "q a": "banned", "p b": "none", "q b": "", "p c": "", "p d": "", "p e": "3/hour", "q e": "banned", "r e": "none",
	} {
		policy, subject, _ := strings.Cut(name, " ")
		if got := now(o, policy, subject); got != want {
			t.Errorf("%s: got %q; want %q", name, got, want)
		}
	}
	if limits, bans := o.InForce(); limits != 4 || bans != 2 {
		t.Errorf("got %d limits and %d bans in force; want 4 and 2", limits, bans)
	}

	write(t, c, "a", "", "", hour)
	write(t, c, "d", "p", "9/hour", hour)
	is(t, o, "p", "a", "7/hour")
	is(t, o, "p", "d", "9/hour")
	if found, _ := o.Find("p", "d"); found.Name != "test" || !found.Until.Equal(hour) {
		t.Errorf("got %+v; want the reason and the end", found)
	}
}

// A limiter lets a subject through, bans it for as long as the operator said, and denies
// as before when that is taken back.
func TestLimiter(t *testing.T) {
	t.Parallel()
	c := redistest.Any(t)
	o := follow(t, c, nil)
	l := middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory(), Override: o.Find},
		middleware.Policy{Name: "p", Key: func(*http.Request) (string, error) { return "k", nil }, Limit: gcra.PerHour(1)}))
	decide := func() *middleware.Decision { return l.Decide(httptest.NewRequest(http.MethodGet, "/", nil)) }
	decide()
	if decide().Allowed {
		t.Fatal("the second request of an hour is allowed")
	}

	write(t, c, "k", "", "none", time.Now().Add(time.Hour))
	redistest.Eventually(t, patience, "the subject to pass", func() bool { return decide().Allowed })
	write(t, c, "k", "", "banned", time.Now().Add(time.Hour))
	redistest.Eventually(t, patience, "the ban", func() bool { return decide().RetryAfter > 3500*time.Second })
	write(t, c, "k", "", "", time.Now())
	redistest.Eventually(t, patience, "the limit", func() bool { d := decide(); return !d.Allowed && d.Results[0].Limit == gcra.PerHour(1) })
}

// parts is a hook that keeps how many fields and bytes an answer had at most.
type parts struct{ fields, bytes int }

func (p *parts) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *parts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *parts) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if scan, ok := cmd.(*redis.ScanCmd); ok {
			part, _ := scan.Val()
			p.fields, p.bytes = max(p.fields, len(part)/2), max(p.bytes, len(strings.Join(part, "")))
		}
		return err
	}
}

// A server follows as many overrides as the command sets, as long as they may be, and reads them in
// parts, so that Redis goes on answering.
func TestMostOverrides(t *testing.T) {
	c := redistest.Start(t).Client() // a stand-in ignores COUNT
	hour := time.Now().Add(time.Hour)
	var all []any
	for i := range overrides.Most - 1 {
		e := overrides.Entry{Subject: fmt.Sprint("sub:", i), Limit: "none", Until: hour, Why: strings.Repeat("x", 200), At: time.Now()}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Field(), text)
	}
	if err := c.HSet(t.Context(), overrides.Key("rl:"), all...).Err(); err != nil {
		t.Fatal(err)
	}

	write(t, c, "last", "p", "banned", hour)
	most := new(parts)
	c.AddHook(most)
	o := follow(t, c, nil)
	is(t, o, "p", "last", "banned")
	if most.fields > 500 || most.bytes > overrides.MostBytes/10 || most.fields == 0 {
		t.Errorf("one answer had %d fields, one %d bytes; want at most 500, and a tenth of %d", most.fields, most.bytes, overrides.MostBytes)
	}
	if limits, bans := o.InForce(); limits != overrides.Most-1 || bans != 1 {
		t.Errorf("got %d limits and %d bans in force; want %d and 1", limits, bans, overrides.Most-1)
	}
	if n := testing.AllocsPerRun(100, func() { o.Find("p", "last") }); n != 0 {
		t.Errorf("got %v allocations; want none", n)
	}
}

// Servers follow a hash without a version, as somebody may have written it by hand.
func TestWithoutVersion(t *testing.T) {
	t.Parallel()
	c := redistest.Any(t)
	o := follow(t, c, nil)
	write(t, c, "k", "", "banned", time.Now().Add(time.Hour))
	is(t, o, "p", "k", "banned")
	c.HDel(t.Context(), overrides.Key("rl:"), overrides.Version, "{k}:%")
	is(t, o, "p", "k", "")
	write(t, c, "k", "", "banned", time.Now().Add(time.Hour))
	c.HDel(t.Context(), overrides.Key("rl:"), overrides.Version)
	is(t, o, "p", "k", "banned")
}

// A broken entry is skipped, with a line in the log; all others hold.
func TestBrokenEntries(t *testing.T) {
	c := redistest.Any(t)
	hour := time.Now().Add(time.Hour)
	for field, value := range map[string]string{
		"{x}:p":   "nonsense",
		"{e}:p":   "",
		"{y}:p":   `{"subject":"y","policy":"p","limit":"banned","at":"2026-01-01T00:00:00Z"}`,
		"{z}:p":   `{"subject":"k","policy":"p","limit":"1/hour","until":"2026-01-02T00:00:00Z","at":"2026-01-01T00:00:00Z"}`,
		"{u}:p":   `{"subject":"u","policy":"p","limit":"lots","until":"2026-01-02T00:00:00Z","at":"2026-01-01T00:00:00Z"}`,
		"{old}:p": `{"subject":"old","policy":"p","limit":"banned","until":"9999-01-02T00:00:00Z","at":"9999-01-01T00:00:00Z"}`,
	} {
		if err := c.HSet(t.Context(), overrides.Key("rl:"), field, value).Err(); err != nil {
			t.Fatal(err)
		}
	}

	write(t, c, "good", "p", "banned", hour)
	log := new(diagtest.Log)
	o := follow(t, c, log)
	if got := now(o, "p", "good"); got != "banned" {
		t.Errorf("got %q; want banned", got)
	}

	for _, subject := range []string{"x", "y", "z", "u", "old"} {
		if got := now(o, "p", subject); got != "" {
			t.Errorf("%s: got %q; want none", subject, got)
		}
	}

	lines := log.Lines()
	if len(lines) != 6 {
		t.Errorf("got %v; want a line for each", lines)
	}
	for _, line := range lines {
		if line.Code() != "overrides-unread" {
			t.Errorf("got %v", line)
		}
	}

	if _, err := fleet.New(t.Context(), fleet.Config{}); err == nil || !strings.Contains(err.Error(), "Store is nil") {
		t.Errorf("got %v; want that Store is nil", err)
	}
}

// breaksOff is a hook for answers with overrides that do not come.
type breaksOff struct {
	broken atomic.Int64
	once   bool // and no error says so
}

func (b *breaksOff) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaksOff) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *breaksOff) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		all, ok := cmd.(*redis.ScanCmd)
		if !ok || err != nil || b.once && b.broken.Load() > 0 {
			return err
		}

		all.SetVal(nil, 0)
		if b.broken.Add(1); !b.once {
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// If the connection breaks while Redis sends the overrides, the known ones stay.
func TestPartOfOverrides(t *testing.T) {
	t.Parallel()
	c := redistest.Any(t)
	hour := time.Now().Add(time.Hour)
	write(t, c, "a", "", "banned", hour)
	log := new(diagtest.Log)
	o := follow(t, c, log)

	hook := new(breaksOff)
	c.AddHook(hook)
	write(t, c, "b", "", "banned", hour)
	redistest.Eventually(t, patience, "two looks", func() bool { return hook.broken.Load() >= 2 })
	if got := now(o, "p", "a"); got != "banned" {
		t.Errorf("got %q; want the ban that was known", got)
	}
	if lines := log.Lines(); len(lines) != 1 || lines[0].Code() != "overrides-unread" {
		t.Errorf("got %v; want that they cannot be read", lines)
	}

	// Another server may take over meanwhile, to which the cursor means other entries.
	c = redistest.Any(t)
	write(t, c, "a", "", "banned", hour)
	c.AddHook(&breaksOff{once: true})
	is(t, follow(t, c, nil), "p", "a", "banned")
}

// A server that starts while Redis is away has no overrides, and gets them once Redis answers.
// When Redis is away later, they stay. The log says so, and when they can be read.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	log := new(diagtest.Text)
	o, err := fleet.New(t.Context(), fleet.Config{Store: storeOn(t, s.Client()), Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	says := func(parts ...string) { // in the last line
		t.Helper()
		redistest.Eventually(t, patience, fmt.Sprintf("the line %q", parts), func() bool {
			lines := log.Lines("")
			return len(lines) > 0 && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(lines[len(lines)-1], part) })
		})
	}

	if got := now(o, "p", "k"); got != "" {
		t.Errorf("got %q; want no override", got)
	}
	says("level=WARN", "code=overrides-unread", "none is in force until they can be")

	s.Restart()
	write(t, s.Client(), "k", "", "banned", time.Now().Add(time.Hour))
	is(t, o, "p", "k", "banned")
	says("level=INFO", "can be read now")

	s.Kill()
	says("level=WARN", "code=overrides-unread", "the last known ones stay")
	is(t, o, "p", "k", "banned")
	s.Restart()
	says("level=INFO", "can be read now", "limits=0 bans=0") // this Redis has lost its data
	is(t, o, "p", "k", "")
}

// hangs is a hook that holds the first command until the end, as a client without a read timeout
// does for a server that hangs.
type hangs struct {
	breaksOff
	held atomic.Bool
	end  <-chan struct{}
}

func (h *hangs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.held.CompareAndSwap(false, true) {
			<-h.end
		}
		return next(ctx, cmd)
	}
}

// A client that waits without end holds up one look, which the log reports, and not the next.
func TestClientHangs(t *testing.T) {
	t.Parallel()
	c := redistest.Any(t)
	write(t, c, "k", "", "banned", time.Now().Add(time.Hour))
	c.AddHook(&hangs{end: t.Context().Done()})
	log := new(diagtest.Log)
	o := follow(t, c, log)

	is(t, o, "p", "k", "banned")
	if lines := log.Lines(); len(lines) == 0 || lines[0].Code() != "overrides-unread" {
		t.Errorf("got %v; want that the overrides cannot be read", lines)
	}
}
