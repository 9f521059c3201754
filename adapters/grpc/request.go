package ratelimit

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// newRequest returns the call as the request that it is on the wire.
func newRequest(ctx context.Context, method string) *http.Request {
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &url.URL{Path: method},
		RequestURI:    method,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Body:          http.NoBody,
		ContentLength: -1, // unknown
	}

	md, _ := metadata.FromIncomingContext(ctx)
	r.Header = make(http.Header, len(md))
	for key, values := range md {
		switch {
		case key == ":authority":
			r.Host = strings.Join(values, ",") // one, or grpc-go ends the call
		case strings.HasPrefix(key, ":"):
		default:
			if strings.HasSuffix(key, "-bin") {
				for i := range values { // of a copy that is ours
					values[i] = base64.RawStdEncoding.EncodeToString([]byte(values[i]))
				}
			}
			r.Header[http.CanonicalHeaderKey(key)] = values
		}
	}

	// As net/http does for HTTP, so that key functions work for both.
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = remoteAddr(p)
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			r.TLS = &info.State
		}
	}

	return r.WithContext(ctx)
}

// remoteAddr returns the address of the peer. On a Unix socket the client chooses its
// name, which may look like an address.
func remoteAddr(p *peer.Peer) string {
	if p.Addr == nil || onUnix(p.Addr) || onUnix(p.LocalAddr) {
		return "@"
	}
	return p.Addr.String()
}

// onUnix reports whether the address is of a Unix socket. Behind Server.ServeHTTP only the local one says so.
func onUnix(addr net.Addr) bool { return addr != nil && strings.HasPrefix(addr.Network(), "unix") }
