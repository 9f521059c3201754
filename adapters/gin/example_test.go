package ratelimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/gin"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// get sends requests from one client and prints what comes back.
func get(h http.Handler, targets ...string) {
	for _, target := range targets {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(target, w.Code, "remaining", w.Header().Get("RateLimit-Remaining"))
	}
}

func hello(c *gin.Context) { c.String(http.StatusOK, "hello\n") }

func init() { gin.SetMode(gin.ReleaseMode) }

func Example() {
	router := gin.New()
	router.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "users", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"GET /users/:id"}},
	))
	router.GET("/hello", hello)
	router.GET("/users/:id", hello)
	get(router, "/hello", "/users/1", "/users/2", "/users/3")
	// Output:
	// /hello 200 remaining 99
	// /users/1 200 remaining 1
	// /users/2 200 remaining 0
	// /users/3 429 remaining 0
}

// Claims that gin-jwt has verified are in gin's context, under "JWT_PAYLOAD".
// The limiter stands after it.
func ExampleKeyFrom() {
	user := ratelimit.KeyFrom(func(c *gin.Context) (string, error) {
		payload, _ := c.Get("JWT_PAYLOAD")
		claims, ok := payload.(jwt.MapClaims)
		if !ok {
			return "", errors.New("no claims: is gin-jwt in front?")
		}
		return claims.GetSubject()
	})
	router := gin.New()
	router.Use(authenticate, ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "user", Key: user, Limit: gcra.PerMinute(1)}))
	router.GET("/hello", hello)
	get(router, "/hello?as=alice", "/hello?as=alice", "/hello?as=bob")
	// Output:
	// /hello?as=alice 200 remaining 0
	// /hello?as=alice 429 remaining 0
	// /hello?as=bob 200 remaining 0
}

// authenticate leaves claims where gin-jwt's MiddlewareFunc does.
func authenticate(c *gin.Context) {
	c.Set("JWT_PAYLOAD", jwt.MapClaims{"sub": c.Query("as")})
}
