// Package thirdparty holds the tests that need modules of others: histories, with
// Porcupine, and realmw, with authentication middleware and other frameworks. It is a
// module of its own, so that users of the library do not download these.
package thirdparty
