package ratelimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"

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

// Authentication middleware leaves the user in gin's context. Put the limiter
// after it. For gin-jwt, read its claims:
//
//	id, _ := ginjwt.ExtractClaims(c)[auth.IdentityKey].(string)
func ExampleKeyFrom() {
	user := ratelimit.KeyFrom(func(c *gin.Context) (string, error) {
		id := c.GetString("user")
		if id == "" {
			return "", errors.New("no user: is the authentication in front?")
		}
		return id, nil
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

// authenticate is a stand-in for middleware that checks who the client is.
func authenticate(c *gin.Context) { c.Set("user", c.Query("as")) }
