package keyfunc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func ExampleRemoteAddr() {
	r := httptest.NewRequest("GET", "/", nil)
	for _, peer := range []string{"192.0.2.7:4711", "[2001:db8::1]:443", "[2001:db8::2]:443"} {
		r.RemoteAddr = peer
		fmt.Println(keyfunc.RemoteAddr(r))
	}
	// Output:
	// ip:192.0.2.7 <nil>
	// ip:2001:db8::/64 <nil>
	// ip:2001:db8::/64 <nil>
}

func ExampleIPv6Prefix() {
	client := keyfunc.IPv6Prefix(48, keyfunc.RemoteAddr)

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8:1:234::1]:443"
	fmt.Println(client(r))
	// Output: ip:2001:db8:1::/48 <nil>
}

func ExampleTrustedProxies() {
	client := keyfunc.TrustedProxies("10.0.0.0/8", "fd00::/8")

	// The load balancer has appended the address of its peer. The hops before it
	// came from that peer and may be invented.
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:50000"
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.7")
	fmt.Println(client(r))

	// A peer outside the networks is the client.
	r.RemoteAddr = "203.0.113.9:4711"
	fmt.Println(client(r))
	// Output:
	// ip:192.0.2.7 <nil>
	// ip:203.0.113.9 <nil>
}

func ExampleTrustedHops() {
	// A CDN and a load balancer with unknown addresses.
	client := keyfunc.TrustedHops(2)

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.7, 203.0.113.9")
	fmt.Println(client(r))
	// Output: ip:192.0.2.7 <nil>
}

type exampleUser struct{}

func ExampleAs() {
	signedIn := keyfunc.Subject(func(ctx context.Context) string { name, _ := ctx.Value(exampleUser{}).(string); return name })
	apiKey := keyfunc.APIKey("X-API-Key", func(_ context.Context, apiKey string) (string, bool) { return "alice", apiKey == "of-alice" })
	user := keyfunc.First(keyfunc.As("user", keyfunc.First(signedIn, apiKey), func(key string) string {
		_, name, _ := strings.Cut(key, ":")
		return name
	}), keyfunc.RemoteAddr)

	// Alice has one bucket, however she signs in.
	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(user(r.WithContext(context.WithValue(r.Context(), exampleUser{}, "alice"))))
	r.Header.Set("X-API-Key", "of-alice")
	fmt.Println(user(r))
	r.Header.Set("X-API-Key", "unknown")
	fmt.Println(user(r))
	// Output:
	// user:alice <nil>
	// user:alice <nil>
	// ip:192.0.2.1 <nil>
}

func ExampleAddrHeader() {
	client := keyfunc.AddrHeader("CF-Connecting-IP",
		"173.245.48.0/20", "2400:cb00::/32") // and the others of https://www.cloudflare.com/ips/

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "173.245.48.1:443"
	r.Header.Set("CF-Connecting-IP", "192.0.2.7")
	fmt.Println(client(r))
	// Output: ip:192.0.2.7 <nil>
}

// A header that clients can set is no key: by changing it a client gets a new
// bucket for each request, and can use up the bucket of another client. Use
// [keyfunc.TrustedProxies], which trusts only your proxies.
func ExampleFunc_incorrect() {
	client := func(r *http.Request) (string, error) {
		return r.Header.Get("X-Forwarded-For"), nil
	}

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	for _, madeUp := range []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"} {
		r.Header.Set("X-Forwarded-For", madeUp)
		fmt.Println(client(r))
	}
	// Output:
	// 1.1.1.1 <nil>
	// 2.2.2.2 <nil>
	// 3.3.3.3 <nil>
}

// Without a check of the signature, the subject of a token is whatever the client
// has written. Use [keyfunc.JWTSubject].
func ExampleJWTSubject_incorrect() {
	unverified := func(r *http.Request) (string, error) {
		var claims jwt.RegisteredClaims
		_, _, err := jwt.NewParser().ParseUnverified(r.Header.Get("Authorization")[len("Bearer "):], &claims)
		return claims.Subject, err
	}

	forged, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject: "victim",
	}).SignedString([]byte("any key at all"))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+forged)
	fmt.Println(unverified(r))
	// Output: victim <nil>
}

func ExampleJWTSubject() {
	secret := []byte("a secret of 32 bytes or more ...")
	subject := keyfunc.JWTSubject(
		func(*jwt.Token) (any, error) { return secret, nil },
		[]string{"HS256"},
		jwt.WithIssuer("https://login.example.com"),
	)
	user := keyfunc.First(subject, keyfunc.RemoteAddr) // without a valid token, by address

	token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Issuer:    "https://login.example.com",
		Subject:   "alice",
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).SignedString(secret)
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	r.Header.Set("Authorization", "Bearer "+token)
	fmt.Println(user(r))

	r.Header.Set("Authorization", "Bearer "+token[:len(token)-8]+"AAAAAAAA")
	fmt.Println(user(r))
	// Output:
	// sub:https://login.example.com|alice <nil>
	// ip:192.0.2.7 <nil>
}

func ExampleJWTClaims() {
	secret := []byte("a secret of 32 bytes or more ...")
	user, claims := keyfunc.JWTClaims(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"})
	planOf := func(r *http.Request) string {
		plan, _ := claims(r)["plan"].(string)
		return plan
	}

	token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "https://login.example.com", "sub": "alice", "plan": "pro", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(secret)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	key, _ := user(r)
	fmt.Printf("%s has plan %q\n", key, planOf(r))

	r.Header.Del("Authorization")
	fmt.Printf("without a token plan %q\n", planOf(r))
	// Output:
	// sub:https://login.example.com|alice has plan "pro"
	// without a token plan ""
}

// userID is the context key under which the authentication middleware stores the user.
type userID struct{}

func ExampleSubject() {
	user := keyfunc.Subject(func(ctx context.Context) string {
		id, _ := ctx.Value(userID{}).(string)
		return id
	})

	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(user(r.WithContext(context.WithValue(r.Context(), userID{}, "alice"))))
	// Output: sub:alice <nil>
}

func ExampleAPIKey() {
	owners := map[string]string{"k-1": "acme", "k-2": "acme"} // in production a table of hashed keys
	tenant := keyfunc.APIKey("X-API-Key", func(_ context.Context, apiKey string) (string, bool) {
		name, ok := owners[apiKey]
		return name, ok
	})

	r := httptest.NewRequest("GET", "/", nil)
	for _, apiKey := range []string{"k-1", "k-2", "made up"} {
		r.Header.Set("X-API-Key", apiKey)
		key, err := tenant(r)
		fmt.Printf("%q %v\n", key, err)
	}
	// Output:
	// "key:acme" <nil>
	// "key:acme" <nil>
	// "" <nil>
}

func ExampleRoute() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(keyfunc.Route(r))
	})
	for _, path := range []string{"/users/7", "/users/8?x=y"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
	}
	// Output:
	// route:GET /users/{id} <nil>
	// route:GET /users/{id} <nil>
}

func ExampleFirst() {
	user := keyfunc.Subject(func(ctx context.Context) string {
		id, _ := ctx.Value(userID{}).(string)
		return id
	})
	key := keyfunc.First(user, keyfunc.RemoteAddr)

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:4711"
	fmt.Println(key(r))
	fmt.Println(key(r.WithContext(context.WithValue(r.Context(), userID{}, "alice"))))
	// Output:
	// ip:192.0.2.7 <nil>
	// sub:alice <nil>
}

func ExampleJoin() {
	key := keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route)

	r := httptest.NewRequest("GET", "/users/7", nil)
	r.RemoteAddr, r.Pattern = "192.0.2.7:4711", "GET /users/{id}"
	fmt.Println(key(r))
	// Output: join:ip:192.0.2.7|route:GET /users/{id} <nil>
}

func ExampleConst() {
	server := keyfunc.Const("server")

	fmt.Println(server(httptest.NewRequest("GET", "/", nil)))
	// Output: const:server <nil>
}
