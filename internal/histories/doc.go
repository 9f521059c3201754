// Package histories checks what several processes saw of one Redis.
package histories
