// Package adapter has what adapters need beside package middleware.
package adapter
