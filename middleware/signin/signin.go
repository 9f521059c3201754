// Package signin limits the guessing of passwords, and locks nobody out by it. A [Guard] counts
// the attempts to sign in by account and by address, and gives back those that were no guess:
//
//	guard, err := signin.New(middleware.Config{Store: store}, signin.JSON("username"), keyfunc.RemoteAddr)
//	mux.Handle("/login", guard.Handler(func(w http.ResponseWriter, r *http.Request) signin.Outcome {
//		user, err := check(r) // the body can be read again
//		...
//	}))
//
// Mount it on the route that checks passwords, for every method that this route takes. The page
// with the form is another route.
//
// docs/login.md has the policies, with reasons, and what an attack gets.
package signin

// signin.go has the policies, the outcomes and the penalty; attempt.go reads the account of a request, and account.go a form
// or JSON.

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Outcome says what the check of a password has found.
type Outcome int

// The outcomes. Any other value means Wrong.
const (
	Wrong  Outcome = iota // the password is wrong, or the account is unknown
	Right                 // they are right
	Failed                // nothing is known: the directory is down, or the request has no credentials
)

// Guard limits attempts to sign in. [New] builds one. All methods are safe for concurrent use.
type Guard struct {
	account keyfunc.Func
	limiter *middleware.Limiter
	refuse  func(http.ResponseWriter, *http.Request, *middleware.Decision) // writes a denial
	log     diag.Log
}

// The names of the policies that a Guard knows. It keeps the others as well, whatever their names.
const (
	login    = "login"          // wrong passwords for one account from one address
	day      = "login-day"      // wrong passwords of a day
	requests = "login-requests" // all attempts from an address: an outcome does not give them back
)

// checkTime is how long a check in [Guard.Handler] may take.
const checkTime = 10 * time.Second

// New returns a Guard. account is [JSON], [Form] or a function of yours, which gets a copy of the
// request and may read its body; client is the address, from package keyfunc.
//
//   - Two names are one account if they differ only in spaces around them, in letter case or in
//     characters without a width.
//   - A function that returns "" has found no account: only the policies of the client apply.
//     After a [MalformedError] error the request is answered 400, and only the policies of the client
//     are charged. After another error the policies follow their OnFailure.
//   - A body is read once, up to 64 KiB and for 5 seconds, and only if the function reads it.
//     What is longer or slower is answered 400.
//
// Headers of the Config has no effect: the fields would tell a guesser how many wrong passwords an
// account has had. Without a Deny of yours, a denial does not name the policies. Observers see two
// decisions about a malformed request: a ban, and the policies of the client.
//
// To change a policy, change what [middleware.Limiter.Policies] of the Limiter returns, and give
// it to Reload.
func New(cfg middleware.Config, account, client keyfunc.Func) (*Guard, error) {
	if account == nil || client == nil {
		return nil, errors.New("ratelimit: signin: account or client is nil; want such as signin.JSON(\"username\") and keyfunc.RemoteAddr")
	}

	g := &Guard{account: account, refuse: cfg.Deny, log: diag.Log{Logger: cfg.Logger}}
	if g.refuse == nil {
		g.refuse = refuse
	}
	cfg.Headers, cfg.Deny = middleware.HeadersNone, g.deny

	var err error
	g.limiter, err = middleware.New(cfg, g.policies(client)...)
	return g, err
}

func (g *Guard) policies(client keyfunc.Func) []middleware.Policy {
	pair := keyfunc.Join(g.key, client)
	return []middleware.Policy{
		// MaxDebt is the longest wait: 59 minutes, and one for the next attempt.
		{Name: login, Key: pair, Skip: g.skip, Limit: gcra.PerMinute(1).WithBurst(5), MaxDebt: 59},
		{Name: day, Key: pair, Skip: g.skip, Limit: gcra.PerDay(20)},
		{Name: "login-account", Key: g.key, Skip: g.skip, Limit: gcra.PerHour(50)},
		{Name: "login-client", Key: client, Limit: gcra.PerHour(300)},
		{Name: requests, Key: client, Limit: gcra.PerSecond(10)},
	}
}

// Limiter returns the limiter, for From of an adapter. The handler behind it calls
// [Guard.Settle] when it has checked the password. Its Allow reads the body of the request, and
// the request that Allow returns has the whole body again; Decide and Peek leave it read.
func (g *Guard) Limiter() *middleware.Limiter { return g.limiter }

// Handler returns a handler that limits attempts, calls check and settles its outcome. A panic of
// check counts as Wrong, and goes on. The request of check has the whole body, and a context that
// ends after 10 seconds and not when the client hangs up.
func (g *Guard) Handler(check func(http.ResponseWriter, *http.Request) Outcome) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, ok := g.limiter.Allow(w, r)
		if !ok {
			return
		}

		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), checkTime)
		defer cancel()
		outcome := Wrong
		defer func() { g.Settle(context.WithoutCancel(ctx), outcome) }()
		outcome = check(w, r.WithContext(ctx))
	})
}

// Settle settles what the attempt costs. ctx is the context of the request behind the limiter.
// Call it once for an attempt, before you write the answer.
//
//   - Wrong stays charged. The first attempt of a day above the burst of the policy login costs two
//     units of login, and each further one twice as many as the one before. While the store is away,
//     each costs one.
//   - Right and Failed give back what the policies have charged, but for login-requests. This goes
//     with a later call of the store: Settle does not wait for it.
//   - Failed counts as Wrong if ctx has ended: a client that hangs up gets nothing back. So give
//     the check a context of its own, see [context.WithoutCancel].
//
// What cannot be settled is logged with the code signin-unsettled.
func (g *Guard) Settle(ctx context.Context, outcome Outcome) {
	d := middleware.FromContext(ctx)
	if d == nil {
		g.unsettled(errors.New("the request has not passed the Guard's Limiter; want it in front, and the context of the handler's request"))
		return
	}

	if outcome == Right || outcome == Failed && ctx.Err() == nil {
		go func() { g.unsettled(d.Refund(ctx, counts(d)...)) }()
		return
	}

	if units := penalty(d); units > 1 {
		err := d.Settle(ctx, units, login)
		var longest *middleware.SettleError // MaxDebt is reached
		if !errors.As(err, &longest) {
			g.unsettled(err)
		}
	}
}

func (g *Guard) unsettled(err error) {
	if err != nil {
		g.log.Report(diag.SigninUnsettled, "", "the outcome of a sign-in could not be settled, so what it was charged stays", "error", err)
	}
}

// counts are the policies that count wrong passwords.
func counts(d *middleware.Decision) (names []string) {
	for _, p := range d.Results {
		if p.Policy != requests {
			names = append(names, p.Policy)
		}
	}
	return names
}

// penalty is what a wrong password costs the policy login, in units: 1, and from the first of a day
// that exceeds the burst on twice as many each time. While the store is away it is 1, as a server
// then knows what is left of its share, and not how many were wrong.
func penalty(d *middleware.Decision) int64 {
	if slices.Contains(d.Degraded(), day) {
		return 1
	}

	wrong, free := int64(0), int64(math.MaxInt64) // of this day, with this one; without a longer wait
	for _, p := range d.Results {
		switch p.Policy {
		case day:
			wrong = p.Limit.Capacity() - p.Remaining
		case login:
			free = p.Limit.Capacity()
		}
	}
	return 1 << min(max(wrong-free, 0), 30)
}
