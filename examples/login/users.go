package main

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
)

// users are hashes of passwords by account.
type users map[string][]byte

func newUsers() users {
	return users{"alice": hash("alice", "wonderland"), "bob": hash("bob", "builder")}
}

// check takes as long for an unknown account as for a known one.
func (u users) check(account, password string) bool {
	want, known := u[account]
	got := hash(account, password)
	return subtle.ConstantTimeCompare(got, want) == 1 && known
}

// hash pretends that the account is the salt. Choose argon2id or bcrypt, with a random salt.
func hash(account, password string) []byte {
	key, err := pbkdf2.Key(sha256.New, password, []byte(account), 10_000, sha256.Size)
	if err != nil {
		panic(err) // the parameters are valid
	}
	return key
}
