// Package prelude declares the names that Go blocks of the pages use and leave
// to the reader's program. A block gets the ones it uses. A name with the suffix
// of an adapter (router_gin) replaces the plain one beside that adapter.
package prelude

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	ginjwt "github.com/appleboy/gin-jwt/v2"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

var (
	// What stands around a block.
	ctx context.Context
	t   *testing.T
	w   http.ResponseWriter
	r   *http.Request

	// The router, and what is mounted on it.
	mux        *http.ServeMux
	router     chi.Router
	router_gin *gin.Engine
	e          *echo.Echo
	e_echov5   *echov5.Echo
	hello      http.HandlerFunc
	h          http.Handler

	// The limiter, and what it is made of.
	store    gcra.Store
	cfg      middleware.Config
	policies []middleware.Policy
	limiter  *middleware.Limiter
	limit    func(http.Handler) http.Handler
	client   keyfunc.Func
	user     keyfunc.Func
	tenant   keyfunc.Func
	byAPIKey keyfunc.Func
	text     string // of a configuration
	password string
	rdb      *goredis.Client

	// The application.
	secret    []byte
	owners    map[string]string
	pool      *x509.CertPool
	auth      *ginjwt.GinJWTMiddleware
	isAdmin   func(*http.Request) bool
	userOf    func(context.Context) string
	userID    func(key string) string
	planOf    func(*http.Request) string
	query     func(*http.Request) (rows int64, err error)
	maxTokens func(*http.Request) int64
	stream    func(http.ResponseWriter, *http.Request) (used int64)
	deliver   func(context.Context, *url.URL) error
	requeue   func(*url.URL, time.Duration) error
	running   *inflight.Limiter
	hook      *url.URL

	// A sign-in.
	right func(username, password string) bool

	billingDayOf func(*http.Request) int
	contracts    map[string]middleware.Override

	newOwnStore func(now func() time.Time) gcra.Store
	passed      atomic.Int64
)
