package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
)

const (
	maxBody   = 1 << 20
	maxTokens = 4096 // well below the burst, or a request could never pass
)

// reservation is the context key of the tokens that a request may use.
type reservation struct{}

// reserved is the Cost of the policies that count tokens.
func reserved(r *http.Request) int64 { return int64(r.Context().Value(reservation{}).(int)) }

// withReservation reads how many tokens a request may use, before the limiter does.
func withReservation(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage // passed on as it is
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil {
			http.Error(w, "want a JSON object of at most 1 MiB", http.StatusBadRequest)
			return
		}

		var answer int
		if err := json.Unmarshal(body["max_tokens"], &answer); err != nil || answer < 1 || answer > maxTokens {
			http.Error(w, "want max_tokens from 1 to 4096", http.StatusBadRequest)
			return
		}

		body["stream"] = json.RawMessage(`true`)
		body["stream_options"] = json.RawMessage(`{"include_usage": true}`) // or no chunk has the usage
		text, err := json.Marshal(body)
		if err != nil {
			http.Error(w, "sorry", http.StatusInternalServerError)
			return
		}

		prompt := min(len(text)/4, maxTokens) // about 4 bytes a token
		r = r.WithContext(context.WithValue(r.Context(), reservation{}, answer+prompt))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		next.ServeHTTP(w, r)
	})
}

// newProxy passes requests on to the model and settles their cost.
func newProxy(model *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(model) },
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode == http.StatusOK {
				res.Body = &stream{ReadCloser: res.Body, r: res.Request, used: -1}
			} else {
				settle(res.Request, 0)
			}
			return nil
		},

		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // the client is there still, so it is the model that has failed
				log.Print("model: ", err)
				settle(r, 0)
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

func settle(r *http.Request, tokens int64) {
	if err := ratelimit.FromContext(r.Context()).Settle(r.Context(), tokens, "tokens", "month"); err != nil {
		log.Print(err) // the client goes on
	}
}

// stream is an answer on its way to the client: server-sent events, of which one has the
// usage.
type stream struct {
	io.ReadCloser
	r    *http.Request
	line []byte // that has begun
	used int64  // tokens; -1 until it is known
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	for _, part := range bytes.SplitAfter(p[:n], []byte("\n")) {
		if s.line = append(s.line, part...); bytes.HasSuffix(s.line, []byte("\n")) || len(s.line) > maxBody {
			s.event(s.line)
			s.line = s.line[:0]
		}
	}
	return n, err
}

func (s *stream) event(line []byte) {
	var chunk struct {
		Usage *struct {
			Total int64 `json:"total_tokens"`
		}
	}
	data, ok := bytes.CutPrefix(line, []byte("data: "))
	if ok && json.Unmarshal(data, &chunk) == nil && chunk.Usage != nil {
		s.used = chunk.Usage.Total
	}
}

// Close is called when the answer has been sent or the client has hung up.
func (s *stream) Close() error {
	if s.used >= 0 {
		settle(s.r, s.used)
	}
	return s.ReadCloser.Close()
}
