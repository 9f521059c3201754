package signin

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/denial"
	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// attempt is the body of a request whose account is known: the limiter's functions get one request
// one after the other, and the first of them reads it. The application reads the whole body here.
type attempt struct {
	io.Reader
	io.Closer

	guard      *Guard
	account    string // "" if there is none
	err        error  // why the account is not known
	clientOnly bool   // the policies of the account do not apply
}

func (a *attempt) malformed() bool { return errors.As(a.err, new(MalformedError)) }

// attempt returns the attempt of a request, and makes it the request's body.
func (g *Guard) attempt(r *http.Request) *attempt {
	if a, ok := r.Body.(*attempt); ok && a.guard == g {
		return a
	}

	b := &body{original: cmp.Or(r.Body, io.ReadCloser(http.NoBody))}
	a := &attempt{Closer: b.original, guard: g, err: errors.New("signin: the function for the account has panicked")}
	r.Body = a
	defer func() { a.Reader = b.whole() }()

	asked := r.Clone(r.Context()) // whose forms the function may fill
	asked.Body = b
	a.account, a.err = g.account(asked)
	switch {
	case b.err != "":
		a.err = b.err // a function may ignore it
	case a.err == nil && a.account != "":
		a.account, a.err = normal(a.account)
	}
	return a
}

// key is the key of the account. It refuses what is malformed: deny charges the policies of the client.
func (g *Guard) key(r *http.Request) (string, error) {
	a := g.attempt(r)
	if a.malformed() {
		return "", iface.ErrRefused
	}
	return "account:" + a.account, a.err
}

// skip exempts requests without an account from the policies of the account.
func (g *Guard) skip(r *http.Request) bool {
	a := g.attempt(r)
	return a.clientOnly || a.account == "" && a.err == nil
}

// deny answers a request that is denied. One that is malformed is charged here.
func (g *Guard) deny(w http.ResponseWriter, r *http.Request, d *middleware.Decision) {
	a := g.attempt(r)
	var why MalformedError
	if !errors.As(a.err, &why) {
		g.refuse(w, r, d)
		return
	}

	if why == errSlow { // ends the read that goes on, or the server would wait for it
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}

	a.clientOnly = true
	if d = g.limiter.Decide(r); d.Allowed {
		problem(http.StatusBadRequest, string(why)).Write(w, r)
		return
	}
	if d.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(d.RetryAfter/time.Second), 10))
	}
	g.refuse(w, r, d)
}

// refuse writes a denial that does not tell which policy denied: a guesser could learn whether
// others guess the same account.
func refuse(w http.ResponseWriter, r *http.Request, d *middleware.Decision) {
	detail := "There were too many attempts to sign in."
	if d.Status() == http.StatusServiceUnavailable {
		detail = "Nobody can sign in at the moment."
	}
	problem(d.Status(), detail).Write(w, r)
}

func problem(status int, detail string) denial.Problem {
	return denial.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}
