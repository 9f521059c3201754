module github.com/seed-e377111c/ratelimit/examples/grpc

go 1.26.0

replace (
	github.com/seed-e377111c/ratelimit => ../..
	github.com/seed-e377111c/ratelimit/adapters/grpc => ../../adapters/grpc
)

require (
	github.com/seed-e377111c/ratelimit v0.0.0
	github.com/seed-e377111c/ratelimit/adapters/grpc v0.0.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
