package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// counts are the policies that count wrong passwords.
var counts = []string{"login", "login-day", "login-account", "login-client"}

func policies(client keyfunc.Func) []ratelimit.Policy {
	account := func(r *http.Request) (string, error) { return "account:" + accountOf(r), nil }
	both := keyfunc.Join(account, client)

	return []ratelimit.Policy{
		// MaxDebt is the longest wait of this policy: 59 minutes, and one for the next attempt.
		{Name: "login", Key: both, Limit: gcra.PerMinute(1).WithBurst(5), MaxDebt: 59},
		{Name: "login-day", Key: both, Limit: gcra.PerDay(20)},
		{Name: "login-account", Key: account, Limit: gcra.PerHour(50)},
		{Name: "login-client", Key: client, Limit: gcra.PerHour(300)},
		// All attempts count here, so those that give back the others are not free.
		{Name: "login-requests", Key: client, Limit: gcra.PerSecond(10)},
	}
}

// accountOf is the name that is counted and looked up: two spellings that find one account
// must be one key.
func accountOf(r *http.Request) string {
	return strings.ToLower(strings.Join(strings.Fields(r.PostFormValue("account")), " "))
}

// checker reports whether the password is that of the account. An error means that it
// could not find out.
type checker func(ctx context.Context, account, password string) (right bool, err error)

func signIn(check checker) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// The check goes on if the client hangs up, so hanging up gives nothing back.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
		defer cancel()
		right, err := check(ctx, accountOf(r), r.PostFormValue("password"))
		settle(r, right, err)

		switch {
		case err != nil:
			log.Print("sign-in: ", err)
			http.Error(w, "nobody can sign in at the moment", http.StatusServiceUnavailable)
		case right:
			fmt.Fprintln(w, "welcome")
		default:
			http.Error(w, "wrong account or password", http.StatusUnauthorized)
		}
	}
}

// settle is called once the password has been checked, and before the answer.
func settle(r *http.Request, right bool, err error) {
	d := ratelimit.FromContext(r.Context())
	var settled error
	if right || err != nil {
		// This attempt is given back, and no earlier one: a success does not clear the count.
		settled = d.Refund(r.Context(), counts...)
	} else {
		settled = d.Settle(r.Context(), penalty(d), "login")
	}

	var longest *ratelimit.SettleError // MaxDebt is reached
	if settled != nil && !errors.As(settled, &longest) {
		log.Print(settled)
	}
}

// penalty is what a wrong password costs the policy login, in units of a minute: 1, and
// from the sixth of a day on twice as many each time. While Redis is away it is 1, as a server
// then knows what is left of its share, and not how many were wrong.
func penalty(d *ratelimit.Decision) int64 {
	if slices.Contains(d.Degraded(), "login-day") {
		return 1
	}
	for _, p := range d.Results {
		if p.Policy == "login-day" {
			wrong := p.Limit.Capacity() - p.Remaining // with this one
			return 1 << max(wrong-5, 0)
		}
	}
	return 1
}
