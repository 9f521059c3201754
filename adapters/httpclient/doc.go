// Package httpclient is for callers of other people's APIs: http.RoundTrippers
// that keep to a limit, so that the caller hardly ever sees a 429.
//
//	transport := httpclient.Must(httpclient.New(httpclient.Config{
//		Store: store,
//		Policies: []httpclient.Policy{
//			{Name: "5s", Key: httpclient.ByCredential, Limit: gcra.Limit{Count: 25, Per: 5 * time.Second}},
//			{Name: "minute", Key: httpclient.ByCredential, Limit: gcra.PerMinute(300)},
//		},
//	}))
//	client := &http.Client{Transport: transport}
//
// A [Transport] knows the limit. Each request waits for its turn, first come,
// first served over all processes that share the store; when it is sent, all
// policies have been charged. What the server refuses all the same, with 429 or
// with 503 and a Retry-After, is sent again when the server says, if it may be,
// and meanwhile no other request goes there either.
//
// An [Adaptive] knows no limit and needs no store. It reads what the server
// tells of the limit and paces itself.
//
// Each takes the other as its Base: a Transport on an Adaptive sends again what
// was refused and is paced in doing so. Neither changes a request.
package httpclient
