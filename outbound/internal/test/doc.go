// Package test tests package httpclient and turns.Turns from outside: against real servers with
// limits of their own, with several processes on one Redis that fails.
//
//	go test ./outbound/internal/test    the short form, with the other tests
//	make outbound                       the long form, which takes six minutes of an idle machine
//	go test -v -run Express ./outbound/internal/test
//
// With -v each test prints its table. What a test needs besides Go it starts itself: a redis-server,
// nginx, and express-rate-limit, which it installs with npm. Where one is missing the test is skipped, or
// fails with RATELIMIT_TEST_REDIS=required and RATELIMIT_TEST_PARTNERS=required.
package test
