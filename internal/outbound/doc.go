// Package outbound tests package httpclient and gcra.Turns from outside.
package outbound
