package main

import (
	"encoding/json"
	"net/http"

	"github.com/seed-e377111c/ratelimit/middleware/signin"
)

// signIn checks a password. The guard has read the body, and it can be read again.
func (u users) signIn(w http.ResponseWriter, r *http.Request) signin.Outcome {
	var in struct{ Username, Password string }
	err := json.NewDecoder(r.Body).Decode(&in)
	right := err == nil && u.check(in.Username, in.Password)
	if !right {
		http.Error(w, "wrong username or password", http.StatusUnauthorized)
		return signin.Wrong // or Failed, if a database does not answer
	}
	_, _ = w.Write([]byte("welcome\n"))
	return signin.Right
}
