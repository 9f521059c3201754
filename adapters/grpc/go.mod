module github.com/seed-e377111c/ratelimit/adapters/grpc

go 1.26.0

replace github.com/seed-e377111c/ratelimit => ../..

require (
	github.com/seed-e377111c/ratelimit v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
