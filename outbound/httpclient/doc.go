// Package httpclient keeps an http.Client within the rate limits of the APIs that it calls.
//
//	transport := httpclient.Must(httpclient.New(httpclient.Config{
//		Store: store,
//		Policies: []httpclient.Policy{
//			{Name: "5s", Key: httpclient.ByCredential, Limit: gcra.Limit{Count: 20, Per: 5 * time.Second, Burst: 5}},
//			{Name: "minute", Key: httpclient.ByCredential, Limit: gcra.PerMinute(280).WithBurst(20)},
//		},
//	}))
//	client := &http.Client{Transport: transport}
//
// A [Transport] is for limits that you know, here 25 requests in 5 seconds and 300 a minute:
// Burst + Count is what a server with windows allows. Requests wait for their turns, usually in the
// order of arrival over all processes that share the store. A request that the server still denies, such as
// with 429 and Retry-After, is sent again after that time, within MaxTries and MaxWait, if it is safe to
// repeat.
//
// An [Adaptive] is for limits that you do not know. It paces its requests by the RateLimit fields of the
// responses, and needs no store.
//
// Each may be the Base of the other: a Transport on an Adaptive repeats denied requests at the pace
// of the Adaptive.
package httpclient

// Where to change what: transport.go is the Transport, with denial.go for what to send again and pause.go
// for what waits meanwhile. adaptive.go is the Adaptive. Both read responses with
// outbound/internal/retryafter and pace requests with outbound/internal/pacer, by pacers.go; turns are
// those of outbound/turns. key.go has the keys.
