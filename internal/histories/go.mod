module github.com/seed-e377111c/ratelimit/internal/histories

go 1.26.0

replace github.com/seed-e377111c/ratelimit => ../..

require (
	github.com/anishathalye/porcupine v1.3.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/seed-e377111c/ratelimit v0.0.0-00010101000000-000000000000
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
