module github.com/seed-e377111c/ratelimit/adapters/connect

go 1.26.0

replace github.com/seed-e377111c/ratelimit => ../..

require (
	connectrpc.com/connect v1.21.1
	github.com/seed-e377111c/ratelimit v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261019180522-ce908d29299b
	google.golang.org/protobuf v1.36.12
)

require github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
