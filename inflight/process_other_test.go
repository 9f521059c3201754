//go:build !unix

package inflight_test

func children() {}
